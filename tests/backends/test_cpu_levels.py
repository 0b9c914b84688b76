"""Every instruction set gives the same bits. Each is tried in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from tensorfold_backend_cpu.kernels.levels import LEVEL

pytestmark = pytest.mark.slow

PROGRAM = """
import hashlib, sys
import numpy as np
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.handles import Router
from tensorfold.contracts.tensors import Affine, Dense
from tensorfold.observe import configure_logs
from tensorfold_backend_cpu import CpuBackend
from tensorfold_backend_cpu.kernels.levels import LEVEL
from tensorfold.testing.op_state_cases import STATE_CASES
from tensorfold.testing.op_trial import Part, Trial

configure_logs()
digest = hashlib.sha256()
rng = np.random.default_rng(0)
session = CpuBackend().open(BackendSettings(threads=2))
ops = session.ops("rows", session.store({}, {}, 1), {})
x = session.array(rng.standard_normal((13, 128)).astype(np.float32))
for bits in (4, 8):
    for group in (16, 32, 64):
        for centred in (False, True):
            codes = rng.integers(0, 1 << bits, (50, 128), dtype=np.uint8)
            scales = rng.uniform(0.001, 0.02, (50, 128 // group)).astype(np.float16).astype(np.float32)
            biases = np.float32(-(1 << (bits - 1))) * scales if centred else -scales * np.float32(3.25)
            stored = codes[:, 0::2] | codes[:, 1::2] << 4 if bits == 4 else codes
            packed = session.packer.linear([Affine(bits, group, stored.astype(np.uint8), scales, biases)], [None])
            digest.update(session.numpy(ops.linear(x, packed)).tobytes())
for act in ("silu", "gelu", "relu2", "sigmoid"):
    digest.update(session.numpy(ops.glu(x * 4.0, act)).tobytes())
digest.update(session.numpy(ops.rms_norm(x, None, 1e-5)).tobytes())
for name in ("softplus", "exp", "tanh"):
    digest.update(session.numpy(getattr(ops, name)(x * 4.0)).tobytes())
one, other = x[:1], session.array(rng.standard_normal((13, 1)).astype(np.float32))
digest.update(session.numpy((x + one) * other).tobytes())
weight = session.packer.vector(np.ones(64, np.float32))
for first in (False, True):
    halves = ops.reshape(x, 13, 2, 64)
    gated = ops.gated_rms_norm(halves, halves, weight, 1e-5, gate_first=first, act="silu")
    digest.update(session.numpy(gated).tobytes())
matrices = [Dense(rng.standard_normal((64, 64)).astype(np.float32) / 8, "f32") for _ in range(72)]
pairs = [matrices[i : i + 2] for i in range(0, 48, 2)]
experts = session.packer.experts(pairs, matrices[48:], act="silu", gated=True, limit=None)
for score in ("softmax", "sigmoid"):
    logits = session.array(rng.standard_normal((13, 24)).astype(np.float32))
    bias = session.packer.vector(rng.standard_normal(24).astype(np.float32))
    ids, weights = ops.route(logits, Router(k=4, score=score, groups=4, keep_groups=2, scale=1.5), bias)
    digest.update(session.numpy(ids).tobytes() + session.numpy(weights).tobytes())
    digest.update(session.numpy(ops.experts(ops.reshape(x, 26, 64)[:13], ids, weights, experts)).tobytes())
for mode in ("auto", "exact"):
    session = CpuBackend().open(BackendSettings(threads=2, weights=mode))
    for case in STATE_CASES:
        if case.name.startswith(("attend usual", "attend a window over", "attend softcap", "attend sinks", "short_conv",
                                 "gated_delta", "ssd")):
            trial = Trial(case, session)
            trial.chunks(0, [61, 61, 61])
            trial.feed("rows", [Part(0, 3)])
            for position in sorted(trial.outputs[0]):
                digest.update(trial.outputs[0][position].tobytes())
print(LEVEL, digest.hexdigest())
"""


@cache
def bits(level: str) -> list[str]:
    """The level and a digest of what it computes."""
    environment = {**os.environ, "TENSORFOLD_CPU_KERNELS": level}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=280, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize("level", ["avxvnni", "avx2", "plain"])
def test_a_level_has_the_bits_of_the_best_one(level: str) -> None:
    """Wherever this processor can run it."""
    best = bits(LEVEL)
    try:
        got = bits(level)
    except subprocess.CalledProcessError as error:
        if "can only run" in error.stderr:
            pytest.skip(f"this processor has no {level}")
        raise
    assert got == [level, best[1]]
