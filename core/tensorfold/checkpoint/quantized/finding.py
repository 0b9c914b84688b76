"""Which stored tensors together are one matrix: told by their names, types and shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from tensorfold.checkpoint.quantized.codes import in_words
from tensorfold.checkpoint.quantized.floats import FLOAT4_GROUP
from tensorfold.checkpoint.quantized.matrices import Float4, Float8, Integers, Matrix, MlxAffine, WordIntegers
from tensorfold.checkpoint.quantized.scheme import Scheme
from tensorfold.checkpoint.quantized.stored import REAL, StoredTensors

__all__ = ["BESIDE", "Found", "find_matrices"]

BESIDE: Final = (
    ".input_scale",
    ".input_global_scale",
    ".input_zero_point",
    ".output_scale",
    ".k_scale",
    ".v_scale",
    ".q_scale",
    ".prob_output_scale",
    ".weight_shape",
)
"""What activations and caches are quantized with, which are floats here, and shapes that were read."""

_SUFFIXES: Final = ("_packed", "_scale", "_scale_inv", "_scale_2", "_global_scale", "_zero_point", "_g_idx")
"""Of the parts of a matrix, behind its name."""


class _Unfit(Exception):
    """Why tensors are no matrix."""


@dataclass(frozen=True, slots=True)
class Found:
    """What the quantized tensors of a checkpoint are."""

    matrices: Mapping[str, Matrix]
    """By name."""
    unfit: Mapping[str, tuple[str, str]]
    """Names of matrices that cannot be read: the stored tensor of the codes, and why. Nobody may ask for one."""
    parts: frozenset[str]
    """The stored tensors of both."""


def find_matrices(scheme: Scheme, stored: StoredTensors) -> Found:
    """Every quantized matrix, by the name under which a family asks for it."""
    finder = _Finder(scheme, stored)
    matrices: dict[str, Matrix] = {}
    unfit: dict[str, tuple[str, str]] = {}
    for name in finder.names:
        try:
            matrix = finder.matrix(name)
        except _Unfit as error:
            unfit[name.removesuffix("_packed")] = (name, str(error))
        else:
            if matrix is not None:
                matrices[matrix.name] = matrix
    parts = {part for matrix in matrices.values() for part in matrix.parts}
    if unfit:
        parts |= {codes for codes, _ in unfit.values()}
        parts |= {name for name in finder.names if _owner(name) in unfit}
    return Found(matrices, unfit, frozenset(parts))


def _owner(part: str) -> str:
    """The matrix that a tensor of this name would be a part of."""
    module, _, last = part.rpartition(".")
    if last in ("scales", "biases"):
        return f"{module}.weight"
    return next((part.removesuffix(suffix) for suffix in _SUFFIXES if part.endswith(suffix)), part)


class _Finder:
    def __init__(self, scheme: Scheme, stored: StoredTensors) -> None:
        self._scheme = scheme
        self._stored = stored
        self.names = dict.fromkeys(stored.names())

    def matrix(self, name: str) -> Matrix | None:
        """The matrix whose codes this tensor holds; None: it holds none.

        Raises:
            _Unfit: its codes and scales do not belong together, or are of a kind that is not read.
        """
        info = self._stored.info(name)
        finders: dict[str, Callable[[str], Matrix | None]] = {
            "U32": self._mlx,
            "I32": self._words,
            "U8": self._float4,
            "I8": self._integers,
            "F8_E4M3": self._float8,
        }
        matrix = finders[info.kind](name) if info.kind in finders else None
        if matrix is not None and matrix.name != name and matrix.name in self.names:
            raise _Unfit(f"is there twice, as {matrix.name} and as {name}")
        for part in () if matrix is None else matrix.parts:
            if part != name and (kind := self._stored.info(part).kind) not in REAL:
                raise _Unfit(f"has {part} of type {kind}, and only {', '.join(sorted(REAL))} are read there")
        return matrix

    def _mlx(self, codes: str) -> Matrix | None:
        module = codes.removesuffix(".weight")
        scales, biases = f"{module}.scales", f"{module}.biases"
        rule = self._scheme.modules.get(module, self._scheme.affine)
        there = [each in self.names for each in (scales, biases)]
        if rule is None or not any(there):
            return None
        if not all(there):
            raise _Unfit(f"has no {biases if there[0] else scales}")
        *rows, words = self._shape(codes)
        columns, left = divmod(words * 32, rule.bits)
        if left or self._shape(scales) != (*rows, columns // rule.group) or columns % rule.group:
            raise _Unfit(
                f"is {list(self._shape(codes))} with scales {list(self._shape(scales))}, which are not {rule.bits} bits"
                f" in groups of {rule.group}"
            )
        if self._shape(biases) != self._shape(scales):
            raise _Unfit(f"has scales {list(self._shape(scales))} and biases {list(self._shape(biases))}")
        return MlxAffine(
            name=codes,
            shape=(*rows, columns),
            codes=codes,
            scales=scales,
            biases=biases,
            bits=rule.bits,
            group=rule.group,
        )

    def _words(self, codes: str) -> Matrix | None:
        if not codes.endswith(".weight_packed"):
            return None
        name = codes.removesuffix("_packed")
        if f"{name}_g_idx" in self.names:
            raise _Unfit(f"has its columns in the order of {name}_g_idx, which is not read")
        scales, zeros = self._scales(name), self._zeros(name)
        rows, columns = self._logical(name, codes)
        words = self._shape(codes)[-1]
        bits = next((bits for bits in (8, 4, 2, 3, 5, 6) if -(-columns // in_words(bits)) == words), None)
        if bits is None or columns % 16:
            raise _Unfit(f"is {list(self._shape(codes))}, which {columns} columns of no number of bits take")
        group = self._group(scales, rows, columns)
        wanted = (-(-rows // in_words(bits)), columns // group)
        if zeros is not None and (self._shape(zeros) != wanted or self._stored.info(zeros).kind != "I32"):
            raise _Unfit(f"has {zeros} {list(self._shape(zeros))}, which must be words of {bits} bits {list(wanted)}")
        return WordIntegers(
            name=name,
            shape=(rows, columns),
            codes=codes,
            scales=scales,
            zeros=zeros,
            bits=bits,
            group=group,
        )

    def _integers(self, codes: str) -> Matrix | None:
        if not codes.endswith(".weight"):
            return None
        scales, zeros = self._scales(codes), self._zeros(codes)
        rows, columns = self._pair(codes)
        if columns % 16:
            raise _Unfit(f"has {columns} columns, and must have a multiple of 16")
        if zeros is not None and prod(self._shape(zeros)) != prod(self._shape(scales)):
            raise _Unfit(f"has {zeros} {list(self._shape(zeros))} for scales {list(self._shape(scales))}")
        return Integers(
            name=codes,
            shape=(rows, columns),
            codes=codes,
            scales=scales,
            zeros=zeros,
            bits=8,
            group=self._group(scales, rows, columns),
        )

    def _float4(self, codes: str) -> Matrix | None:
        name = codes.removesuffix("_packed")
        divided, multiplied = f"{name}_global_scale", f"{name}_scale_2"
        whole = divided if divided in self.names else multiplied
        if whole not in self.names:
            if f"{name}_scale" in self.names:
                raise _Unfit(f"has no {divided if name != codes else multiplied}")
            return None
        scales = self._scales(name)
        *rows, half = self._shape(codes)
        if self._shape(scales) != (*rows, 2 * half // FLOAT4_GROUP) or 2 * half % FLOAT4_GROUP:
            raise _Unfit(
                f"is {[*rows, half]} with scales {list(self._shape(scales))}, which are not of 16 columns each"
            )
        if prod(self._shape(whole)) not in (1, prod(rows[:-1])):
            raise _Unfit(f"has {whole} {list(self._shape(whole))}, which must be one for each matrix")
        return Float4(
            name=name, shape=(*rows, 2 * half), codes=codes, scales=scales, whole=whole, divides=whole == divided
        )

    def _float8(self, codes: str) -> Matrix | None:
        if codes.endswith(("_scale", "_scale_inv")):
            return None
        inverse = f"{codes}_scale_inv"
        scales = inverse if inverse in self.names else self._scales(codes)
        shape = self._shape(codes)
        if len(shape) < 2:
            raise _Unfit(f"is {list(shape)}, and only matrices are FP8")
        block = self._block(scales, shape)
        return Float8(name=codes, shape=shape, codes=codes, scales=scales, block=block)

    # ---- shapes --------------------------------------------------------------------------------------------

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._stored.info(name).shape

    def _scales(self, name: str) -> str:
        scales = f"{name}_scale"
        if scales not in self.names:
            raise _Unfit(f"has no {scales}")
        return scales

    def _zeros(self, name: str) -> str | None:
        zeros = f"{name}_zero_point"
        if zeros in self.names:
            return zeros
        if self._scheme.zero_points:
            raise _Unfit(f"has no {zeros}")
        return None

    def _pair(self, name: str) -> tuple[int, int]:
        shape = self._shape(name)
        if len(shape) != 2:
            raise _Unfit(f"is {list(shape)}, and must be a matrix")
        return shape[0], shape[1]

    def _logical(self, name: str, codes: str) -> tuple[int, int]:
        """Rows and columns, which padded words do not tell."""
        rows, _ = self._pair(codes)
        told = f"{name}_shape"
        if told not in self.names or prod(self._shape(told)) != 2:
            raise _Unfit(f"has no {told} of two numbers")
        sizes = [int(size) for size in self._stored.raw(told)]
        if sizes[0] != rows or sizes[1] < 1:
            raise _Unfit(f"has {rows} rows, and {told} says {sizes}")
        return rows, sizes[1]

    def _group(self, scales: str, rows: int, columns: int) -> int:
        """Columns that share one scale: some of a row, all of it, or all of the matrix."""
        count = prod(self._shape(scales))
        if count and count % rows == 0 and columns % (count // rows) == 0 and (columns // (count // rows)) % 16 == 0:
            return columns // (count // rows)
        raise _Unfit(f"is [{rows}, {columns}] with {count} scales, which do not share out its columns")

    def _block(self, scales: str, shape: tuple[int, ...]) -> tuple[int, int]:
        *stack, rows, columns = shape
        count, stacked = prod(self._shape(scales)), prod(stack)
        declared = self._scheme.block
        # The declared blocks first: as many scales may also be one a row.
        for block in (*([declared] if declared else []), (rows, columns), (1, columns)):
            each = -(-rows // block[0]) * -(-columns // block[1])
            if count == stacked * each or (count == 1 and each == 1):
                return block
        told = "" if declared is None else f", nor of blocks of {declared[0]} x {declared[1]}"
        raise _Unfit(f"is {list(shape)} with {count} scales, which are not one, or one a row{told}")
