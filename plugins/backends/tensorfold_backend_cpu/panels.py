"""Matrices in panels of 16 output rows, in the order in which kernels read them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.tensors import Affine, Dense, Tensor
from tensorfold_backend_cpu.kernels.linear import AFFINE_KERNELS, AFFINE_KINDS, FLOAT_KERNELS, FLOAT_KINDS, AffineKind
from tensorfold_backend_cpu.kernels.tiles import Stored
from tensorfold_backend_cpu.memory import Memory

__all__ = [
    "PANEL",
    "SLAB",
    "AffinePanels",
    "AffineSource",
    "FloatPanels",
    "FloatSource",
    "Panels",
    "Source",
    "affine_source",
    "alike",
    "float_source",
    "panels_of",
]

PANEL: Final = 16
"""Output rows of a panel."""
SLAB: Final = 1 << 17
"""Elements that are packed at a time: memory beside the packed weights is bounded by a few copies of them."""

T = TypeVar("T", bound=np.generic)
S = TypeVar("S", bound="Source")
Codes: TypeAlias = Callable[[int, int], NDArray[np.uint8]]


class AffineWords(TypedDict):
    """The fields of a call that say where a quantized matrix lies."""

    steps: int
    codes: int
    codes_stride: int
    scales: int
    biases: int
    scales_stride: int
    group_shift: int
    centre: int


@dataclass(frozen=True, eq=False)
class AffinePanels:
    """A quantized matrix."""

    rows: int
    columns: int
    kind: int
    """In `AFFINE_KINDS`."""
    group: int
    """Columns that share a scale."""
    centre: int
    """The logarithm of the power of two at which codes are centred; 0 when groups have biases."""
    codes: NDArray[np.uint8]
    """`[panels, bytes]`, as `kernels.dots` reads them."""
    scales: NDArray[np.floating[Any]]
    """`[panels, groups, 16]`."""
    biases: NDArray[np.floating[Any]] | None

    @property
    def layout(self) -> AffineKind:
        return AFFINE_KINDS[self.kind]

    @cached_property
    def words(self) -> AffineWords:
        """For a call that multiplies with it."""
        step = self.layout.step
        return {
            "steps": -(-self.columns // step),
            "codes": int(self.codes.ctypes.data),
            "codes_stride": self.codes.strides[0],
            "scales": int(self.scales.ctypes.data),
            "biases": 0 if self.biases is None else int(self.biases.ctypes.data),
            "scales_stride": self.scales.strides[0],
            "group_shift": max(1, self.group // step).bit_length() - 1,
            "centre": self.centre,
        }

    def compile(self) -> None:
        """Make the kernels that read it, unless they are there."""
        _ = AFFINE_KERNELS[self.kind].address


@dataclass(frozen=True, slots=True, eq=False)
class FloatPanels:
    """A matrix of floats."""

    rows: int
    columns: int
    kind: int
    """In `FLOAT_KINDS`."""
    weight: NDArray[Any]
    """`[panels, columns, 16]`."""

    def compile(self) -> None:
        """Make the kernels that read it, unless they are there."""
        _ = FLOAT_KERNELS[self.kind].address


Panels: TypeAlias = AffinePanels | FloatPanels


@dataclass(frozen=True, slots=True, eq=False)
class FloatSource:
    """A matrix that is packed as floats."""

    tensor: Tensor
    kind: int
    """In `FLOAT_KINDS`."""

    @property
    def rows(self) -> int:
        return self.tensor.shape[0]

    def part(self, first: int, last: int) -> NDArray[Any]:
        """Rows, in the type that they are packed in."""
        part = self.tensor.rows(first, last)
        return part.values if isinstance(part, Dense) and part.type == FLOAT_KINDS[self.kind] else part.f32()


@dataclass(frozen=True, slots=True, eq=False)
class AffineSource:
    """A matrix that is packed as codes, with scales and biases in half precision where it holds them exactly."""

    rows: int
    kind: int
    """In `AFFINE_KINDS`."""
    group: int
    centre: int
    scales: NDArray[np.float32]
    biases: NDArray[np.float32]
    part: Codes
    """The codes of rows, one a byte."""

    @classmethod
    def of(cls, bits: int, group: int, scales: NDArray[np.float32], biases: NDArray[np.float32], part: Codes) -> Self:
        """Of a matrix `[rows, columns]` with scales and biases `[rows, groups]`."""
        centre = _centre(scales, biases)
        biased = centre is None
        narrow = _is_half(scales) and (not biased or _is_half(biases))
        layout = AffineKind(4 if bits <= 4 else 8, 16 if group == 16 else 32, not narrow, biased)
        return cls(len(scales), AFFINE_KINDS.index(layout), group, centre or 0, scales, biases, part)


Source: TypeAlias = FloatSource | AffineSource


def float_source(tensor: Tensor) -> FloatSource:
    """Floats in the type in which they are stored; the values of codes in f32."""
    kind: Stored = tensor.type if isinstance(tensor, Dense) and tensor.type in FLOAT_KINDS else "f32"
    return FloatSource(tensor, FLOAT_KINDS.index(kind))


def affine_source(tensor: Affine) -> AffineSource:
    """The codes as they are stored."""
    return AffineSource.of(
        tensor.bits, tensor.group, tensor.scales, tensor.biases, lambda first, last: tensor.rows(first, last).unpacked()
    )


def alike(one: Source, two: Source) -> bool:
    """Whether two matrices can lie under each other in the same panels: the first ends with a whole one."""
    if one.rows % PANEL:
        return False
    match one, two:
        case AffineSource(), AffineSource():
            return (one.kind, one.group, one.centre) == (two.kind, two.group, two.centre)
        case FloatSource(), FloatSource():
            return one.kind == two.kind
        case _:
            return False


def panels_of(sources: Sequence[Source], columns: int) -> Panels:
    """Matrices that are alike, in memory of its final size from the start, filled a few rows at a time."""
    floats = [each for each in sources if isinstance(each, FloatSource)]
    codes = [each for each in sources if isinstance(each, AffineSource)]
    return _float_panels(floats, columns) if floats else _affine_panels(codes, columns)


def _float_panels(sources: Sequence[FloatSource], columns: int) -> FloatPanels:
    rows = sum(each.rows for each in sources)
    weight = _aligned_zeros(sources[0].part(0, 1).dtype, _panels(rows), columns, PANEL)
    for source, first, last, panel in _slabs(sources, columns):
        filled = _padded(source.part(first, last)).reshape(-1, PANEL, columns)
        weight[panel : panel + len(filled)] = filled.transpose(0, 2, 1)
    return FloatPanels(rows, columns, sources[0].kind, weight)


def _affine_panels(sources: Sequence[AffineSource], columns: int) -> AffinePanels:
    rows, like = sum(each.rows for each in sources), sources[0]
    layout = AFFINE_KINDS[like.kind]
    groups, width = like.scales.shape[1], -(-columns // layout.step) * layout.step
    stored = np.dtype(np.float32 if layout.wide else np.float16)
    codes = _aligned_zeros(np.dtype(np.uint8), _panels(rows), PANEL * width * layout.bits // 8)
    scales = _aligned_zeros(stored, _panels(rows), groups, PANEL)
    biases = _aligned_zeros(stored, _panels(rows), groups, PANEL) if layout.biased else None
    for source, first, last, panel in _slabs(sources, columns):
        end = panel + _panels(last - first)
        codes[panel:end] = _codes(source.part(first, last), layout.bits, width)
        scales[panel:end] = _by_panel(source.scales[first:last])
        if biases is not None:
            biases[panel:end] = _by_panel(source.biases[first:last])
    return AffinePanels(rows, columns, like.kind, like.group, like.centre, codes, scales, biases)


def _slabs(sources: Sequence[S], columns: int) -> Iterator[tuple[S, int, int, int]]:
    """Rows of each source, first and last, and the panel that the first of them begins."""
    step = max(1, SLAB // (PANEL * columns)) * PANEL
    panel = 0
    for source in sources:
        for first in range(0, source.rows, step):
            yield source, first, min(first + step, source.rows), panel + first // PANEL
        panel += _panels(source.rows)


def _panels(rows: int) -> int:
    return -(-rows // PANEL)


def _padded(values: NDArray[T]) -> NDArray[T]:
    """With rows of zeros up to the end of the last panel."""
    missing = -len(values) % PANEL
    return np.pad(values, ((0, missing), (0, 0))) if missing else values


def _codes(codes: NDArray[np.uint8], storage: int, width: int) -> NDArray[np.uint8]:
    """`[panels, bytes]`: for each four columns (two times four with 4 bits) 16 rows of four bytes."""
    rows, columns = codes.shape
    padded = np.zeros((_panels(rows) * PANEL, width), np.uint8)
    padded[:rows, :columns] = codes
    # Four codes as one word, so that the transposition moves words.
    words = padded.view(np.uint32).reshape(len(padded) // PANEL, PANEL, -1)
    if storage == 4:
        words = words[:, :, 0::2] | words[:, :, 1::2] << np.uint32(4)
    return np.ascontiguousarray(words.transpose(0, 2, 1)).view(np.uint8).reshape(len(words), -1)


def _by_panel(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """`[rows, groups]` to `[panels, groups, 16]`."""
    return _padded(values).reshape(-1, PANEL, values.shape[1]).transpose(0, 2, 1)


def _centre(by_group: NDArray[np.float32], by_group_biases: NDArray[np.float32]) -> int | None:
    """c when every bias is minus 2 ** c times its scale."""
    scales, biases = by_group.reshape(-1), by_group_biases.reshape(-1)
    nonzero = int(np.argmax(scales != 0))
    if not scales[nonzero]:
        return None if biases.any() else 0
    ratio = -float(biases[nonzero]) / float(scales[nonzero])
    centre = next((each for each in range(8) if ratio == 1 << each), None)
    if centre is None:
        return None
    return centre if np.array_equal(scales * np.float32(-ratio), biases) else None


def _is_half(values: NDArray[np.float32]) -> bool:
    """Whether half precision holds all of them."""
    with np.errstate(over="ignore"):
        return bool(np.array_equal(values.astype(np.float16).astype(np.float32), values))


def _aligned_zeros(kind: np.dtype[Any], *shape: int) -> NDArray[Any]:
    """An array that begins at a cache line."""
    return Memory(math.prod(shape) * kind.itemsize).bytes.view(kind).reshape(shape)
