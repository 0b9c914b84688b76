"""Blocks over the operations, shared by families: each holds its handles and constants in the open.

A block is called as `block(ops, step, x)` with rows `[R, H]` and gives rows `[R, H]`. While a decoder is built, the
family passes each one through `weights.block(...)`, so that a backend may put its own in its place, having seen the
handles and constants; nothing is asked when a Step runs.
"""

from tensorfold.compute.layers.attention import Attention, attention
from tensorfold.compute.layers.block import Block
from tensorfold.compute.layers.mlp import GatedMlp, gated_mlp
from tensorfold.compute.layers.norm import RmsNorm, rms_norm
from tensorfold.compute.layers.residual import ResidualLayer

__all__ = [
    "Attention",
    "Block",
    "GatedMlp",
    "ResidualLayer",
    "RmsNorm",
    "attention",
    "gated_mlp",
    "rms_norm",
]
