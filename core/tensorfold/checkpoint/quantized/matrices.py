"""The kinds of quantized matrices: what each is made of, its shape, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.checkpoint.quantized.codes import affine, stream_codes, word_codes
from tensorfold.checkpoint.quantized.expanding import Expanding
from tensorfold.checkpoint.quantized.floats import expand_float4, expand_float8
from tensorfold.checkpoint.quantized.stored import StoredTensors, real
from tensorfold.contracts.tensors import Affine, Form

__all__ = ["Float4", "Float8", "Integers", "Matrix", "MlxAffine", "WordIntegers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Common:
    name: str
    """Under which a family asks for it."""
    shape: tuple[int, ...]
    """`[..., rows, columns]`."""
    codes: str
    """The stored tensor of the codes."""
    scales: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MlxAffine(_Common):
    """MLX's format: value = code * scale + bias, in groups along a row."""

    biases: str
    bits: int
    group: int
    form: ClassVar[Form] = "affine"

    @property
    def parts(self) -> tuple[str, ...]:
        """The stored tensors that it is made of."""
        return (self.codes, self.scales, self.biases)

    @property
    def kind(self) -> str:
        """For people."""
        return f"{self.bits}-bit groups of {self.group}"

    def read(self, stored: StoredTensors) -> Affine:
        """The codes as they lie in the file, where `Affine` has them so."""
        return affine(
            self.bits,
            self.group,
            stored.raw(self.codes),
            self.shape[-1],
            lambda rows: stream_codes(rows, self.bits),
            real(stored, self.scales),
            real(stored, self.biases),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Integers(_Common):
    """compressed-tensors' integers: value = (code - zero point) * scale."""

    zeros: str | None
    """The stored tensor of the zero points; None: the middle of the range."""
    bits: int
    group: int
    form: ClassVar[Form] = "affine"

    @property
    def parts(self) -> tuple[str, ...]:
        """The stored tensors that it is made of."""
        return (self.codes, self.scales, *([self.zeros] if self.zeros else []))

    @property
    def kind(self) -> str:
        """For people."""
        return f"{self.bits}-bit groups of {self.group}"


class WordIntegers(_Integers):
    """As many in a 32-bit word as fit whole, codes along a row and zero points along a column; all begin at 0."""

    __slots__ = ()

    def read(self, stored: StoredTensors) -> Affine:
        """Exact for scales of 16 bits: their products with codes fit into float32."""
        columns = self.shape[-1]
        scales = real(stored, self.scales).reshape(self.shape[0], -1)
        return affine(
            self.bits,
            self.group,
            stored.raw(self.codes),
            columns,
            lambda rows: word_codes(rows, self.bits, columns),
            scales,
            -self._zeros(stored) * scales,
        )

    def _zeros(self, stored: StoredTensors) -> NDArray[np.float32] | np.float32:
        if self.zeros is None:
            return np.float32(1 << (self.bits - 1))
        # One word holds the zero points of several rows, of which an `Affine` of few bits has an even number.
        turned = np.ascontiguousarray(stored.raw(self.zeros).T)
        rows = self.shape[0] + (self.shape[0] % 2 if self.bits <= 4 else 0)
        codes = Affine(
            self.bits,
            16,
            word_codes(turned, self.bits, rows),
            np.empty(0, np.float32),
            np.empty(0, np.float32),
        ).unpacked()
        return codes[:, : self.shape[0]].T.astype(np.float32)


class Integers(_Integers):
    """Signed bytes."""

    __slots__ = ()

    def read(self, stored: StoredTensors) -> Affine:
        """The codes moved up by 128."""
        scales = real(stored, self.scales).reshape(self.shape[0], -1)
        zeros = np.float32(0) if self.zeros is None else real(stored, self.zeros).reshape(self.shape[0], -1)
        return affine(
            8,
            self.group,
            stored.raw(self.codes),
            self.shape[-1],
            lambda rows: rows.view(np.uint8) ^ np.uint8(0x80),
            scales,
            -(zeros + np.float32(128)) * scales,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Float8(_Common):
    """E4M3 floats with a scale for each block; a row, a column or the whole may be a block."""

    block: tuple[int, int]
    """Rows and columns."""
    form: ClassVar[Form] = "expanded"

    @property
    def parts(self) -> tuple[str, ...]:
        """The stored tensors that it is made of."""
        return (self.codes, self.scales)

    @property
    def kind(self) -> str:
        """For people."""
        return "FP8"

    def read(self, stored: StoredTensors) -> Expanding:
        """Expanded to float32 when its rows are read."""
        rows, columns = self.shape[-2:]
        codes = stored.raw(self.codes).reshape(-1, rows, columns)
        blocks = (len(codes), -(-rows // self.block[0]), -(-columns // self.block[1]))
        scales = real(stored, self.scales)
        # One scale for a whole stack, or scales of each of its matrices, whatever their shape.
        scales = np.broadcast_to(scales.reshape(blocks) if scales.size > 1 else scales, blocks)

        def expand(matrix: int, first: int, last: int) -> NDArray[np.float32]:
            return expand_float8(codes[matrix, first:last], scales[matrix], self.block, first)

        return Expanding(self.shape, expand)


@dataclass(frozen=True, slots=True, kw_only=True)
class Float4(_Common):
    """NVFP4: E2M1 floats with an E4M3 scale for 16, and one for the whole matrix."""

    whole: str
    """The stored tensor of the whole matrix's scale."""
    divides: bool
    """By it the scales are divided; else they are multiplied by it."""
    form: ClassVar[Form] = "expanded"

    @property
    def parts(self) -> tuple[str, ...]:
        """The stored tensors that it is made of."""
        return (self.codes, self.scales, self.whole)

    @property
    def kind(self) -> str:
        """For people."""
        return "NVFP4"

    def read(self, stored: StoredTensors) -> Expanding:
        """Expanded to float32 when its rows are read."""
        rows, columns = self.shape[-2:]
        codes = stored.raw(self.codes).reshape(-1, rows, columns // 2)
        whole = real(stored, self.whole).reshape(-1, 1, 1)  # one, or one for each matrix of a stack
        scales = real(stored, self.scales).reshape(len(codes), rows, -1)
        scales = scales / whole if self.divides else scales * whole

        def expand(matrix: int, first: int, last: int) -> NDArray[np.float32]:
            return expand_float4(codes[matrix, first:last], scales[matrix, first:last])

        return Expanding(self.shape, expand)


Matrix: TypeAlias = MlxAffine | WordIntegers | Integers | Float8 | Float4
