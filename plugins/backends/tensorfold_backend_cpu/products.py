"""Calls that multiply rows with a fused group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tensorfold.errors import BackendError
from tensorfold_backend_cpu.handles import CpuLinear, Part
from tensorfold_backend_cpu.kernels.calls import Call
from tensorfold_backend_cpu.kernels.linear import AffineLinear, FloatLinear
from tensorfold_backend_cpu.panels import PANEL, AffinePanels, FloatPanels
from tensorfold_backend_cpu.places import Place, Target

__all__ = ["ROWS_AN_ITEM", "needs_floats", "panels_an_item", "products", "steps_of"]

_ITEM: Final = 1 << 16
"""Multiplications that an item has at least: about a microsecond, ten times what taking it costs."""
_ITEMS_A_THREAD: Final = 4
"""Items that each thread finds at least, where they are large enough, so that none waits long for the others."""
_PANELS_AN_ITEM: Final = 64
"""Panels of an item at most, unless it would be too small."""
ROWS_AN_ITEM: Final = 128
"""Rows of an item at most: their integers stay in the second level of cache."""


def steps_of(linear: CpuLinear) -> tuple[int, ...]:
    """The steps in which a group wants its input as integers; none when all its parts are floats."""
    return tuple(sorted({part.panels.layout.step for part in linear.parts if isinstance(part.panels, AffinePanels)}))


def needs_floats(linear: CpuLinear) -> bool:
    """Whether a part of it is multiplied as floats."""
    return any(isinstance(part.panels, FloatPanels) for part in linear.parts)


def products(
    linear: CpuLinear,
    rows: int,
    x: Place | None,
    integers: Callable[[int], Target],
    out: Place,
    residual: Place | None,
    threads: int,
) -> list[Call]:
    """One call for each part.

    Args:
        x: the input, if a part is multiplied as floats.
        integers: the input as integers in steps of so many columns.
        residual: is added to the result.
    """
    return [_product(part, linear.columns, rows, x, integers, out, residual, threads) for part in linear.parts]


def _product(
    part: Part,
    columns: int,
    rows: int,
    x: Place | None,
    integers: Callable[[int], Target],
    out: Place,
    residual: Place | None,
    threads: int,
) -> Call:
    panels = -(-part.panels.rows // PANEL)
    rows_an_item = min(rows, ROWS_AN_ITEM)
    an_item = panels_an_item(panels, PANEL * columns * rows_an_item, threads)
    shared = {
        "items": -(-panels // an_item) * -(-rows // rows_an_item),
        "rows": rows,
        "rows_an_item": rows_an_item,
        "panels": panels,
        "panels_an_item": an_item,
        "outputs": part.panels.rows,
        "bias": 0 if part.bias is None else int(part.bias.ctypes.data),
        "residual": 0 if residual is None else residual.address + 4 * part.first,
        "residual_stride": 0 if residual is None else residual.stride,
        "out": out.address + 4 * part.first,
        "out_stride": out.stride,
        "kind": part.panels.kind,
    }
    match part.panels:
        case AffinePanels() as affine:
            return AffineLinear(
                **shared,
                target=integers(affine.layout.step).address,
                **affine.words,
            )
        case FloatPanels() as floats:
            if x is None:
                raise BackendError("a part is multiplied as floats, and there are none")
            return FloatLinear(
                **shared,
                x=x.address,
                x_stride=x.stride,
                columns=floats.columns,
                weight=int(floats.weight.ctypes.data),
                weight_stride=floats.weight.strides[0],
            )


def panels_an_item(panels: int, work: int, threads: int) -> int:
    """Of a product with so many panels; `work` is that of one of them, in multiplications."""
    enough = -(-_ITEM // work)
    share = -(-panels // (_ITEMS_A_THREAD * threads))
    return max(1, min(panels, max(enough, min(share, _PANELS_AN_ITEM))))
