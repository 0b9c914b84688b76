"""The neutral description of stored weights: what a checkpoint holds and a packer packs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Affine", "Dense", "DenseType", "Form", "Tensor", "TensorInfo"]

DenseType: TypeAlias = Literal["f32", "f16", "bf16", "i64", "i32", "u8"]
"""Element types of a dense tensor. numpy has no bfloat16: such values lie as uint16 with type `bf16`."""

Form: TypeAlias = Literal["dense", "affine", "expanded"]
"""What reading gives: the stored floats or integers (`Dense`), the stored codes (`Affine`), or floats that codes are
expanded to (`Dense`), since no packer takes codes of their kind."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of a tensor before it is read."""

    name: str
    shape: tuple[int, ...]
    """Logical shape, `[out, in]` for a matrix."""
    kind: str
    """The stored format's own name (`BF16`, `Q4_K`, ...), for messages."""
    stored_bytes: int
    form: Form = "dense"
    problem: str = ""
    """Why it cannot be read, as the rest of a sentence that begins with its name; empty: nothing is known against it.
    Where there is one, the shape is that of what is stored."""


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """A tensor whose elements are stored one by one."""

    values: NDArray[Any]
    """In the tensor's shape; may be a read-only view of the file."""
    type: DenseType

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape."""
        return self.values.shape

    def rows(self, first: int, last: int) -> Dense:
        """Rows of a matrix, as a view."""
        return Dense(self.values[first:last], self.type)

    def at(self, index: int) -> Dense:
        """One matrix of a stack, as a view."""
        return Dense(self.values[index], self.type)

    def f32(self) -> NDArray[np.float32]:
        """The values as float32, exactly for f32, f16 and bf16 (a view when they are already f32)."""
        if self.type == "bf16":
            return (self.values.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(self.values, dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A matrix (or a stack of them) quantized in groups along its last axis: value = code * scale + bias.

    MLX's affine format and GGUF's Q4_0 to Q8_0 and K-quants are all expressed so, exactly: their products of
    scales have at most 24 significant bits.
    """

    bits: int
    """Significant bits of a code, 2 to 8; codes are from 0 to 2**bits - 1."""
    group: int
    """Columns that share one scale and bias: 16, 32, 64 or 128; divides the number of columns."""
    codes: NDArray[np.uint8]
    """`[..., rows, columns * storage / 8]`; with 4-bit storage the lower nibble is the earlier column."""
    scales: NDArray[np.float32]
    """`[..., rows, columns / group]`."""
    biases: NDArray[np.float32]
    """`[..., rows, columns / group]`."""

    @property
    def storage(self) -> Literal[4, 8]:
        """Bits that a code takes in `codes`: 4 up to four significant bits, else 8."""
        return 4 if self.bits <= 4 else 8

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical shape."""
        return (*self.codes.shape[:-1], self.codes.shape[-1] * 8 // self.storage)

    def rows(self, first: int, last: int) -> Affine:
        """Rows of a matrix, as a view."""
        return self._part(slice(first, last))

    def at(self, index: int) -> Affine:
        """One matrix of a stack, as a view."""
        return self._part(index)

    def _part(self, part: int | slice) -> Affine:
        return Affine(self.bits, self.group, self.codes[part], self.scales[part], self.biases[part])

    def unpacked(self) -> NDArray[np.uint8]:
        """The codes, one a byte, in the logical shape."""
        if self.storage == 8:
            return self.codes
        unpacked = np.empty(self.shape, np.uint8)
        unpacked[..., 0::2] = self.codes & 0x0F
        unpacked[..., 1::2] = self.codes >> 4
        return unpacked

    def f32(self) -> NDArray[np.float32]:
        """The values as float32: one rounding after the product, one after the sum."""
        codes = self.unpacked()
        groups = codes.reshape(*codes.shape[:-1], -1, self.group).astype(np.float32)
        groups *= self.scales[..., None]
        groups += self.biases[..., None]
        return groups.reshape(codes.shape)


Tensor: TypeAlias = Dense | Affine
