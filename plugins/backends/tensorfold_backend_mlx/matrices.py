"""Matrices as MLX holds them: floats in the type of activations, or codes in groups with a scale and a bias each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.tensors import Affine

__all__ = ["CodedMatrix", "FloatMatrix", "Matrix", "coded", "joined", "stacked"]

_GROUPS = (32, 64, 128)
"""Columns that may share a scale in MLX's products."""
_WORD_BITS = {2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 8, 8: 8}
"""Bits that a code takes in MLX's words, by its significant bits."""
_SLAB = 1 << 20
"""Codes that are packed at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class FloatMatrix:
    """`[..., out, in]`."""

    weight: mx.array

    @property
    def rows(self) -> int:
        """Outputs."""
        return self.weight.shape[-2]

    @property
    def columns(self) -> int:
        """Inputs."""
        return self.weight.shape[-1]


@dataclass(frozen=True, slots=True, eq=False)
class CodedMatrix:
    """Value = code * scale + bias."""

    words: mx.array
    """`[..., out, in * bits / 32]` uint32: a stream of bits, the earliest column lowest."""
    scales: mx.array
    """`[..., out, in / group]`, in the type that products are computed in."""
    biases: mx.array
    """The same shape and type."""
    bits: int
    group: int

    @property
    def rows(self) -> int:
        """Outputs."""
        return self.scales.shape[-2]

    @property
    def columns(self) -> int:
        """Inputs."""
        return self.scales.shape[-1] * self.group

    @property
    def kind(self) -> tuple[int, int, mx.Dtype]:
        """Matrices of one kind can be laid together."""
        return self.bits, self.group, self.scales.dtype


Matrix: TypeAlias = FloatMatrix | CodedMatrix


def coded(tensor: Affine, act: mx.Dtype, *, on_host: bool) -> CodedMatrix | None:
    """The matrix with the codes and values that are stored, or None where MLX has no product for its groups.

    Scales take the type of activations where it holds each of them exactly, else float32, in which the product is then
    computed as well. On the host only products in float32 are fast.
    """
    if tensor.group not in _GROUPS:
        return None
    bits = _WORD_BITS[tensor.bits]
    scales, biases = mx.array(tensor.scales), mx.array(tensor.biases)
    if not on_host and act != mx.float32 and _holds(act, scales) and _holds(act, biases):
        scales, biases = scales.astype(act), biases.astype(act)
    return CodedMatrix(mx.array(_words(tensor, bits)), scales, biases, bits, tensor.group)


def joined(parts: list[Matrix]) -> list[Matrix]:
    """Neighbours of one kind under each other."""
    matrices: list[Matrix] = []
    for part in parts:
        both = _pair(matrices[-1], part) if matrices else None
        if both is None:
            matrices.append(part)
        else:
            matrices[-1] = both
    return matrices


def stacked(matrices: list[Matrix]) -> Matrix | None:
    """Matrices of one kind and shape as a stack `[E, ...]`; None when they are not of one kind."""
    floats = [each for each in matrices if isinstance(each, FloatMatrix)]
    if len(floats) == len(matrices):
        return FloatMatrix(mx.stack([each.weight for each in floats]))
    codes = [each for each in matrices if isinstance(each, CodedMatrix)]
    if len(codes) < len(matrices) or len({each.kind for each in codes}) > 1:
        return None
    return CodedMatrix(
        mx.stack([each.words for each in codes]),
        mx.stack([each.scales for each in codes]),
        mx.stack([each.biases for each in codes]),
        codes[0].bits,
        codes[0].group,
    )


def _pair(first: Matrix, second: Matrix) -> Matrix | None:
    match first, second:
        case FloatMatrix(), FloatMatrix():
            return FloatMatrix(mx.concatenate([first.weight, second.weight]))
        case CodedMatrix(), CodedMatrix() if first.kind == second.kind:
            return CodedMatrix(
                mx.concatenate([first.words, second.words]),
                mx.concatenate([first.scales, second.scales]),
                mx.concatenate([first.biases, second.biases]),
                first.bits,
                first.group,
            )
        case _:
            return None


def _holds(dtype: mx.Dtype, values: mx.array) -> bool:
    return bool(mx.all(values.astype(dtype).astype(mx.float32) == values).item())


def _words(tensor: Affine, bits: int) -> NDArray[np.uint32]:
    """The codes as MLX packs them."""
    if bits == tensor.storage:
        return np.ascontiguousarray(tensor.codes).view(np.uint32)
    codes = tensor.unpacked()
    columns = codes.shape[-1]
    rows = codes.reshape(-1, columns)
    words = np.empty((rows.shape[0], columns * bits // 32), np.uint32)
    slab = max(1, _SLAB // columns)
    for first in range(0, len(rows), slab):
        each = rows[first : first + slab]
        stream = np.unpackbits(each[..., None], axis=-1, count=bits, bitorder="little")
        packed = np.packbits(stream.reshape(len(each), -1), axis=-1, bitorder="little")
        words[first : first + slab] = packed.view(np.uint32)
    return words.reshape(*codes.shape[:-1], -1)
