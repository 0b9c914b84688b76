"""Shapes as a family declares them: what a tensor must be."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Shape", "fits", "spelled"]

Shape: TypeAlias = tuple[int | None, ...]
"""What a tensor must be; None: any size."""


def fits(shape: tuple[int, ...], expected: Shape) -> bool:
    """Whether a tensor of this shape is what was expected."""
    return len(shape) == len(expected) and all(
        want is None or size == want for size, want in zip(shape, expected, strict=True)
    )


def spelled(shape: Shape) -> str:
    """For messages: `[64, any]`."""
    return f"[{', '.join('any' if size is None else str(size) for size in shape)}]"
