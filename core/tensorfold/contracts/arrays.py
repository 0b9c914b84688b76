"""What a family may do to an array itself; all else goes through `Ops`."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

__all__ = ["A", "A_co", "Array"]


class Array(Protocol):
    """A backend's array of activations: rows `[R, ...]`, no batch axis, no padding.

    `+`, `*` and read-indexing give the same bits whatever the row count; transcendental functions do not on
    every backend (torch's `sigmoid` differs in the last partial vector), and are therefore operations.
    """

    @property
    def shape(self) -> Any:
        """Sizes of the axes, a tuple of ints."""
        ...

    def __add__(self, other: Any, /) -> Any: ...

    def __mul__(self, other: Any, /) -> Any: ...

    def __getitem__(self, index: Any, /) -> Any: ...


A = TypeVar("A", bound=Array)
"""The array type of a backend: `numpy.ndarray`, `torch.Tensor`, `mlx.core.array`."""

A_co = TypeVar("A_co", bound=Array, covariant=True)
"""The same, for protocols that only give arrays out."""
