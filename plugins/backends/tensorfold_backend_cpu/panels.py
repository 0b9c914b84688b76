"""Matrices in panels of 16 output rows, in the order in which kernels read them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.tensors import Affine, Dense
from tensorfold_backend_cpu.kernels.linear import AFFINE_KERNELS, AFFINE_KINDS, FLOAT_KERNELS, FLOAT_KINDS, AffineKind
from tensorfold_backend_cpu.kernels.tiles import Stored
from tensorfold_backend_cpu.memory import Memory

__all__ = ["PANEL", "AffinePanels", "FloatPanels", "Panels", "affine_panels", "float_panels", "joined"]

PANEL: Final = 16
"""Output rows of a panel."""


@dataclass(frozen=True, slots=True, eq=False)
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

    @property
    def steps(self) -> int:
        return -(-self.columns // self.layout.step)

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


def float_panels(tensor: Dense) -> FloatPanels:
    """Floats in the type in which they are stored."""
    kind: Stored = tensor.type if tensor.type in FLOAT_KINDS else "f32"
    values = tensor.values if tensor.type == kind else tensor.f32()
    rows, columns = values.shape
    whole = np.zeros((-(-rows // PANEL) * PANEL, columns), values.dtype)
    whole[:rows] = values
    return FloatPanels(
        rows, columns, FLOAT_KINDS.index(kind), _aligned(whole.reshape(-1, PANEL, columns).transpose(0, 2, 1))
    )


def affine_panels(tensor: Affine, columns: int) -> AffinePanels:
    """Codes in the order of `kernels.dots`; scales and biases in half precision where it holds them exactly."""
    step = 16 if tensor.group == 16 else 32
    scales, biases = _by_panel(tensor.scales), _by_panel(tensor.biases)
    centre = _centre(tensor)
    biased = centre is None
    narrow = _is_half(scales) and (not biased or _is_half(biases))
    kind = AFFINE_KINDS.index(AffineKind(tensor.storage, step, not narrow, biased))
    stored = np.float16 if narrow else np.float32
    return AffinePanels(
        rows=tensor.shape[0],
        columns=columns,
        kind=kind,
        group=tensor.group,
        centre=centre or 0,
        codes=_aligned(_codes(tensor, step)),
        scales=_aligned(scales.astype(stored)),
        biases=_aligned(biases.astype(stored)) if biased else None,
    )


def _codes(tensor: Affine, step: int) -> NDArray[np.uint8]:
    """`[panels, bytes]`: for each four columns (two times four with 4 bits) 16 rows of four bytes."""
    codes = tensor.unpacked()
    rows, columns = codes.shape
    padded = np.zeros((-(-rows // PANEL) * PANEL, -(-columns // step) * step), np.uint8)
    padded[:rows, :columns] = codes
    # Four codes as one word, so that the transposition moves words.
    words = padded.view(np.uint32).reshape(len(padded) // PANEL, PANEL, -1)
    if tensor.storage == 4:
        words = words[:, :, 0::2] | words[:, :, 1::2] << np.uint32(4)
    return np.ascontiguousarray(words.transpose(0, 2, 1)).view(np.uint8).reshape(len(words), -1)


def _by_panel(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """`[rows, groups]` to `[panels, groups, 16]`."""
    rows, groups = values.shape
    padded = np.zeros((-(-rows // PANEL) * PANEL, groups), np.float32)
    padded[:rows] = values
    return padded.reshape(-1, PANEL, groups).transpose(0, 2, 1)


def _centre(tensor: Affine) -> int | None:
    """c when every bias is minus 2 ** c times its scale."""
    scales, biases = tensor.scales.reshape(-1), tensor.biases.reshape(-1)
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


def _aligned(values: NDArray[Any]) -> NDArray[Any]:
    """A copy that begins at a cache line."""
    copy = Memory(values.nbytes).bytes.view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def joined(one: Panels, two: Panels) -> Panels | None:
    """One matrix of two that are stored alike, if the first ends with a whole panel."""
    if one.rows % PANEL:
        return None
    match one, two:
        case AffinePanels(), AffinePanels() if _alike(one, two):
            return dataclasses.replace(
                one,
                rows=one.rows + two.rows,
                codes=_stacked(one.codes, two.codes),
                scales=_stacked(one.scales, two.scales),
                biases=None if one.biases is None or two.biases is None else _stacked(one.biases, two.biases),
            )
        case FloatPanels(), FloatPanels() if one.kind == two.kind:
            return dataclasses.replace(one, rows=one.rows + two.rows, weight=_stacked(one.weight, two.weight))
        case _:
            return None


def _alike(one: AffinePanels, two: AffinePanels) -> bool:
    return (one.kind, one.group, one.centre) == (two.kind, two.group, two.centre)


def _stacked(one: NDArray[Any], two: NDArray[Any]) -> NDArray[Any]:
    return _aligned(np.concatenate([one, two]))
