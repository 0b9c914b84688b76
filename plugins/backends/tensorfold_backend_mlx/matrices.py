"""Matrices as MLX holds them: floats in the type of activations, or codes in groups with a scale and a bias each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.packing import pieces
from tensorfold.contracts.tensors import Affine, Dense, Tensor
from tensorfold_backend_mlx.primitives import compute

__all__ = ["CodedMatrix", "FloatMatrix", "Kind", "Matrix", "coded_matrix", "float_matrix", "kind_of"]

T = TypeVar("T", Dense, Affine, Tensor)

_GROUPS = (32, 64, 128)
"""Columns that may share a scale in MLX's products."""
_WORD_BITS = {2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 8, 8: 8}
"""Bits that a code takes in MLX's words, by its significant bits."""
Kind: TypeAlias = tuple[int, int] | None
"""Bits of a code in MLX's words and columns of a group; None: floats. Matrices of one kind are packed as one."""


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

    def real(self) -> FloatMatrix:
        """The same numbers in f32."""
        return FloatMatrix(self.weight.astype(mx.float32))

    def stack(self, count: int) -> FloatMatrix:
        """As so many matrices under each other, `[count, out / count, in]`."""
        return FloatMatrix(mx.unflatten(self.weight, 0, (count, -1)))


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

    def real(self) -> CodedMatrix:
        """The same codes, for products in f32."""
        scales, biases = self.scales.astype(mx.float32), self.biases.astype(mx.float32)
        return CodedMatrix(self.words, scales, biases, self.bits, self.group)

    def stack(self, count: int) -> CodedMatrix:
        """As so many matrices under each other, `[count, out / count, in]`."""
        words, scales, biases = (mx.unflatten(each, 0, (count, -1)) for each in (self.words, self.scales, self.biases))
        return CodedMatrix(words, scales, biases, self.bits, self.group)


Matrix: TypeAlias = FloatMatrix | CodedMatrix


def kind_of(tensor: Tensor) -> Kind:
    """How MLX can multiply by it."""
    if isinstance(tensor, Affine) and tensor.group in _GROUPS:
        return _WORD_BITS[tensor.bits], tensor.group
    return None


def float_matrix(tensors: Sequence[Tensor], dtype: mx.Dtype) -> FloatMatrix:
    """All rows in this type, under each other; codes are expanded."""
    return FloatMatrix(_filled(tensors, tensors[0].shape[1], dtype, _floats))


def coded_matrix(tensors: Sequence[Affine], bits: int, act: mx.Dtype, *, on_host: bool) -> CodedMatrix:
    """All rows under each other, with the codes and values that are stored.

    Scales take the type of activations where it holds each of them exactly, else float32, in which the product is then
    computed as well. On the host only products in float32 are fast.
    """
    group, columns = tensors[0].group, tensors[0].shape[1]
    narrow = not on_host and all(_holds(act, each.scales) and _holds(act, each.biases) for each in tensors)
    dtype = act if narrow else mx.float32
    return CodedMatrix(
        _filled(tensors, columns * bits // 32, mx.uint32, lambda piece: _words(piece, bits)),
        _filled(tensors, columns // group, dtype, lambda piece: piece.scales),
        _filled(tensors, columns // group, dtype, lambda piece: piece.biases),
        bits,
        group,
    )


def _filled(
    tensors: Sequence[T], width: int, dtype: mx.Dtype, convert: Callable[[T], NDArray[Any] | mx.array]
) -> mx.array:
    """What becomes of the tensors' rows, in memory of its final size from the start."""
    target = mx.zeros((sum(each.shape[0] for each in tensors), width), dtype)
    row = 0
    for piece in pieces(tensors):
        values = convert(cast("T", piece))
        made = values if isinstance(values, mx.array) else mx.array(values)
        target[row : row + piece.shape[0]] = made.astype(dtype)
        compute(target)
        row += piece.shape[0]
    # MLX keeps the memory of what is gone for arrays of the same size, of which no more will come.
    mx.clear_cache()
    return target


def _floats(piece: Tensor) -> NDArray[Any] | mx.array:
    match piece:
        case Dense(values, "bf16"):
            return mx.array(values).view(mx.bfloat16)
        case Dense(values, "f16" | "f32"):
            return values
        case _:
            return piece.f32()


def _holds(dtype: mx.Dtype, values: NDArray[np.float32]) -> bool:
    exact = mx.array(values)
    return bool(mx.all(exact.astype(dtype).astype(mx.float32) == exact).item())


def _words(piece: Affine, bits: int) -> NDArray[np.uint32]:
    """The codes as MLX packs them."""
    if bits == piece.storage:
        return np.ascontiguousarray(piece.codes).view(np.uint32)
    codes = piece.unpacked()
    stream = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little")
    return np.packbits(stream.reshape(len(codes), -1), axis=-1, bitorder="little").view(np.uint32)
