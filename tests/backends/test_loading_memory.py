"""Weights go into their place a few rows at a time: a load needs little more memory than its result."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tensorfold.testing.declared_checkpoint import declared_arrays
from tensorfold.testing.family_configs import FAMILY_CONFIGS
from tensorfold.testing.quantized import Quantized, float8, mlx_affine
from tensorfold.testing.safetensors_writer import Stored, write_stored
from tensorfold.testing.tiny import write_texts
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
from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.compute.weights import load_decoder
from tensorfold.contracts.backend import BackendSettings
from tensorfold_model_llama.family import LlamaFamily

backend, mode, dtype, folder, allowed = *sys.argv[1:5], int(sys.argv[5])
made = getattr(importlib.import_module(f"tensorfold_backend_{backend}"), f"{backend.capitalize()}Backend")
session = made().open(BackendSettings(device="cpu", dtype=dtype, threads=1, weights=mode))
# What libraries take at their first use is none of the weights' memory.
tiny = FolderCheckpoint(Path(folder).parent / "tiny")
load_decoder(LlamaFamily(), tiny.config, tiny, session.packer)
checkpoint = FolderCheckpoint(Path(folder))
gc.collect()
data = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (data * 1024 + allowed,) * 2)
try:
    load_decoder(LlamaFamily(), checkpoint.config, checkpoint, session.packer)
except (MemoryError, RuntimeError) as error:
    sys.exit(f"out of memory: {error}")
"""


def folder(path: Path, config: dict[str, Any], scheme: dict[str, Any], make: Callable[..., Quantized] | None) -> int:
    """Write a checkpoint; the number of its weights."""
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


def fp8(module: str, matrix: Any) -> Quantized:
    return float8(f"{module}.weight", matrix, block=(128, 128))


CASES: dict[str, tuple[dict[str, Any], Callable[..., Quantized] | None]] = {
    "plain": ({}, None),
    "MLX 4 bits": ({"quantization": {"bits": 4, "group_size": 64}}, partial(mlx_affine, bits=4, group=64)),
    "FP8": ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, fp8),
}


LOADS: tuple[tuple[str, str, str, str, float], ...] = (
    ("torch", "auto", "float32", "plain", 4),
    ("torch", "auto", "float32", "MLX 4 bits", 4),
    ("torch", "auto", "bfloat16", "MLX 4 bits", 2),
    ("torch", "auto", "bfloat16", "FP8", 2),
    ("cpu", "exact", "float32", "plain", 4),
    ("cpu", "auto", "float32", "plain", 1 + 4 / 32),
    ("cpu", "auto", "float32", "MLX 4 bits", 4 / 8 + 8 / 64),
    ("cpu", "auto", "float32", "FP8", 1 + 4 / 32),
    ("mlx", "auto", "float32", "plain", 4),
    ("mlx", "auto", "float32", "MLX 4 bits", 4 / 8 + 8 / 64),
)
"""Backend, what becomes of floats, type of activations, what is stored, and bytes that a weight takes in the end."""


def _marked(load: tuple[str, str, str, str, float]) -> Any:
    marks = () if load[0] == "cpu" else (getattr(pytest.mark, load[0]),)
    return pytest.param(*load, id=", ".join(load[:4]), marks=marks)


@pytest.mark.parametrize(("backend", "mode", "dtype", "case", "size"), [_marked(each) for each in LOADS])
def test_a_load_needs_at_most_a_seventh_more_memory_than_the_weights_take(
    tmp_path: Path, backend: str, mode: str, dtype: str, case: str, size: float
) -> None:
    """The process may take 1.15 times their final size, and no byte more; with less than their size it fails."""
    folder(tmp_path / "tiny", dict(FAMILY_CONFIGS["llama"]), {}, None)
    final = size * folder(tmp_path / "model", CONFIG, *CASES[case])

    def load(allowed: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", LOAD, backend, mode, dtype, str(tmp_path / "model"), str(int(allowed))],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    done = load(1.15 * final)
    assert done.returncode == 0, done.stderr[-500:]
    if case == "plain":
        # The limit does limit.
        assert load(0.85 * final).returncode != 0
