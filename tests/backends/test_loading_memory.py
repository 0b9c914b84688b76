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

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(sys.platform != "linux", reason="the limit counts private memory on Linux alone"),
]

CONFIG = {
    **FAMILY_CONFIGS["llama"],
    "hidden_size": 512,
    "head_dim": 128,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
}
"""24 million weights, none of whose matrices is more than a 30th."""

LOAD = """
import gc, resource, sys
from pathlib import Path
import torch
from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.compute.weights import load_decoder
from tensorfold.contracts.backend import BackendSettings
from tensorfold_backend_torch import TorchBackend
from tensorfold_model_llama.family import LlamaFamily

folder, dtype, allowed = sys.argv[1], sys.argv[2], int(sys.argv[3])
session = TorchBackend().open(BackendSettings(device="cpu", dtype=dtype, threads=1))
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


@pytest.mark.parametrize(
    ("case", "dtype"),
    [("plain", "float32"), ("MLX 4 bits", "float32"), ("MLX 4 bits", "bfloat16"), ("FP8", "bfloat16")],
)
def test_a_load_needs_at_most_a_seventh_more_memory_than_the_weights_take(
    tmp_path: Path, case: str, dtype: str
) -> None:
    """The process may take 1.15 times their final size, and no byte more; with less than their size it fails."""
    folder(tmp_path / "tiny", dict(FAMILY_CONFIGS["llama"]), {}, None)
    weights = folder(tmp_path / "model", CONFIG, *CASES[case])
    final = weights * (4 if dtype == "float32" else 2)

    def load(allowed: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", LOAD, str(tmp_path / "model"), dtype, str(allowed)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    done = load(int(1.15 * final))
    assert done.returncode == 0, done.stderr[-500:]
    if case == "plain":
        # The limit does limit.
        assert "out of memory" in load(int(0.9 * final)).stderr
