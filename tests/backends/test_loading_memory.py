"""Weights go into their place a few rows at a time: a load needs little more memory than its result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from tensorfold.testing.declared_checkpoint import declared_arrays
from tensorfold.testing.family_configs import FAMILY_CONFIGS
from tensorfold.testing.quantized import Quantized, float4, float8, mlx_affine
from tensorfold.testing.safetensors_writer import Stored, write_stored
from tensorfold.testing.tiny import TinyModel, tiny_weights, write_texts
from tensorfold.testing.tiny_gguf import write_tiny_gguf
from tensorfold_model_llama.family import LlamaFamily

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit counts private memory on Linux alone")

CONFIG = {
    **FAMILY_CONFIGS["llama"],
    "hidden_size": 512,
    "head_dim": 128,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
}
"""24 million weights, none of whose matrices is more than a 30th."""

LOAD = """
import gc, importlib, resource, sys
from pathlib import Path
from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.compute.loading import load_decoder
from tensorfold.contracts.backend import BackendSettings
from tensorfold_model_llama.family import LlamaFamily

backend, mode, dtype, *folders, allowed = sys.argv[1:]
made = getattr(importlib.import_module(f"tensorfold_backend_{backend}"), f"{backend.capitalize()}Backend")
session = made().open(BackendSettings(device="cpu", dtype=dtype, threads=1, weights=mode))
# What libraries take at their first use is none of the weights' memory.
tiny, checkpoint = (open_checkpoint(Path(each), [LlamaFamily()]).checkpoint for each in folders)
load_decoder(LlamaFamily(), tiny.config, tiny, session.packer)
gc.collect()
data = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + int(allowed),) * 2)
try:
    load_decoder(LlamaFamily(), checkpoint.config, checkpoint, session.packer)
except (MemoryError, RuntimeError) as error:
    sys.exit(f"out of memory: {error}")
"""


Write = Callable[[Path, Mapping[str, Any]], int]
"""Writes a checkpoint of this config and gives the number of its weights."""


def folder(scheme: Mapping[str, Any], make: Callable[[str, Any], Quantized] | None) -> Write:
    """Safetensors, with matrices as they are or in a quantized format."""

    def write(path: Path, config: Mapping[str, Any]) -> int:
        arrays = declared_arrays(LlamaFamily(), config)
        stored: dict[str, Stored] = {}
        for name, values in arrays.items():
            if make is None or values.ndim < 2:
                stored[name] = Stored("F32", values)
            else:
                stored |= make(name.removesuffix(".weight"), values).stored
        write_texts(path, {**config, **scheme})
        write_stored(path / "model.safetensors", stored)
        return sum(values.size for values in arrays.values())

    return write


def gguf(path: Path, config: Mapping[str, Any]) -> int:
    """Q8_0 in one file."""
    model = TinyModel(
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        width=config["intermediate_size"],
    )
    write_tiny_gguf(path, model, type="Q8_0")
    return sum(values.size for values in tiny_weights(model).values())


def fp8(module: str, matrix: Any) -> Quantized:
    return float8(f"{module}.weight", matrix, block=(128, 128))


COMPRESSED = {"quantization_config": {"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}}
CASES: dict[str, Write] = {
    "plain": folder({}, None),
    "MLX 4 bits": folder({"quantization": {"bits": 4, "group_size": 32}}, partial(mlx_affine, bits=4, group=32)),
    "MLX 6 bits": folder({"quantization": {"bits": 6, "group_size": 32}}, partial(mlx_affine, bits=6, group=32)),
    "FP8": folder({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, fp8),
    "NVFP4": folder(COMPRESSED, partial(float4, packed=True)),
    "GGUF Q8_0": gguf,
}


LOADS: tuple[tuple[str, str, str, str, float], ...] = (
    ("cpu", "exact", "float32", "plain", 4),
    ("cpu", "auto", "float32", "plain", 1 + 2 / 32),
    ("cpu", "auto", "float32", "MLX 4 bits", 4 / 8 + 8 / 32),
    ("cpu", "auto", "float32", "MLX 6 bits", 1 + 8 / 32),
    ("cpu", "auto", "float32", "FP8", 1 + 2 / 32),
    ("cpu", "auto", "float32", "NVFP4", 1 + 2 / 32),
    ("cpu", "auto", "float32", "GGUF Q8_0", 1 + 2 / 32),
    ("torch", "auto", "float32", "plain", 4),
    ("torch", "auto", "bfloat16", "MLX 4 bits", 2),
    ("torch", "auto", "bfloat16", "FP8", 2),
    ("torch", "auto", "bfloat16", "NVFP4", 2),
    ("torch", "auto", "bfloat16", "GGUF Q8_0", 2),
    ("mlx", "auto", "float32", "plain", 4),
    ("mlx", "auto", "bfloat16", "plain", 2),
    ("mlx", "auto", "bfloat16", "MLX 4 bits", 4 / 8 + 8 / 32),
    ("mlx", "auto", "bfloat16", "MLX 6 bits", 6 / 8 + 8 / 32),
    ("mlx", "auto", "bfloat16", "FP8", 2),
    ("mlx", "auto", "bfloat16", "NVFP4", 2),
    ("mlx", "auto", "bfloat16", "GGUF Q8_0", 1 + 8 / 32),
)
"""Backend, what becomes of floats, type of activations, what is stored, and bytes that a weight takes in the end."""


def _marked(load: tuple[str, str, str, str, float]) -> Any:
    marks = () if load[0] == "cpu" else (getattr(pytest.mark, load[0]),)
    return pytest.param(*load, id=", ".join(load[:4]), marks=marks)


@dataclass(frozen=True)
class Written:
    """A checkpoint, and a tiny one of the same kind."""

    tiny: Path
    model: Path
    weights: int


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Written]:
    """Each case, once."""

    @cache
    def write(case: str) -> Written:
        path = tmp_path_factory.mktemp("case")
        CASES[case](path / "tiny", FAMILY_CONFIGS["llama"])
        return Written(path / "tiny", path / "model", CASES[case](path / "model", CONFIG))

    return write


@pytest.mark.parametrize(("backend", "mode", "dtype", "case", "size"), [_marked(each) for each in LOADS])
def test_a_load_needs_at_most_a_seventh_more_memory_than_the_weights_take(
    written: Callable[[str], Written], backend: str, mode: str, dtype: str, case: str, size: float
) -> None:
    """The process may take 1.15 times their final size, and no byte more; with less than their size it fails."""
    files = written(case)
    final = size * files.weights

    def load(allowed: float) -> subprocess.CompletedProcess[str]:
        arguments = (backend, mode, dtype, files.tiny, files.model, int(allowed))
        return subprocess.run(
            [sys.executable, "-c", LOAD, *map(str, arguments)], capture_output=True, text=True, timeout=240, check=False
        )

    done = load(1.15 * final)
    assert done.returncode == 0, done.stderr[-500:]
    if case == "plain":
        # The limit does limit.
        assert load(0.85 * final).returncode != 0
