"""What the contract of backends holds this one to."""

from __future__ import annotations

from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.examples import BackendExample

__all__ = ["EXAMPLE"]

# What is served by default: eight bits of weights, activations and keys, so the bound is wide; bits are strict.
EXAMPLE = BackendExample(backend="cpu", tolerance=3e-2, settings=BackendSettings(threads=2))
