"""What a backend has to supply for every operation to work: a few dozen one-line array primitives.

`compute.composed` writes all operations, states and packing over these. A new backend starts here, and then overrides
the operations that matter for its speed.

**Bits.** In a `rows` Step an operation's result for a row may not depend on the other rows. Elementwise primitives,
`take` and comparisons have that property on every known library. `matmul` must have it for its batch axes (each pair
of matrices is computed at its own shape), and `exp`, `tanh` and `log1p` for every number of elements; where a library
breaks it (odd widths, last partial vectors), the primitive pads. `sum` is given here, by adjacent pairs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeAlias

from numpy.typing import NDArray

from tensorfold.contracts.arrays import A

__all__ = ["Element", "Primitives"]

Element: TypeAlias = Literal["act", "real"]
"""Floating types of a backend: `act` of activations, weights and grown states; `real` of vectors, norms, softmax,
routing and recurrences, float32 everywhere but in a float64 oracle."""


class Primitives(ABC, Generic[A]):
    """The array library of a backend, as far as the composed operations need it. Axes may be negative."""

    # ---- host and device -------------------------------------------------------------------------------------

    @abstractmethod
    def array(self, values: NDArray[Any]) -> A:
        """Upload a copy: floats become `real`, integers and booleans stay what they are."""

    @abstractmethod
    def numpy(self, x: A) -> NDArray[Any]:
        """Download: floats as float32 (or wider, in an oracle), integers and booleans as they are."""

    @abstractmethod
    def export(self, x: A) -> NDArray[Any]:
        """Download the stored bits, exactly; what numpy has no type for comes as unsigned integers of its size."""

    @abstractmethod
    def restore(self, values: NDArray[Any], element: Element) -> A:
        """Upload what `export` gave of an array of this element type."""

    @abstractmethod
    def itemsize(self, element: Element) -> int:
        """Bytes of one element."""

    # ---- making and writing ----------------------------------------------------------------------------------

    @abstractmethod
    def zeros(self, shape: Sequence[int], element: Element) -> A:
        """A new array of zeros."""

    @abstractmethod
    def cast(self, x: A, element: Element) -> A:
        """The same values in an element type; the array itself when it has it."""

    @abstractmethod
    def like(self, x: A, other: A) -> A:
        """The same values in the type of another array."""

    @abstractmethod
    def put(self, target: A, index: A, rows: A) -> A:
        """`target[index] = rows` on axis 0, distinct indices of any shape. Writes in place where the library does,
        and returns what holds the result either way."""

    # ---- shape -----------------------------------------------------------------------------------------------

    @abstractmethod
    def reshape(self, x: A, shape: Sequence[int]) -> A:
        """The same elements in another shape; one size may be -1."""

    @abstractmethod
    def concat(self, xs: Sequence[A], axis: int) -> A:
        """Arrays of one type joined along an axis."""

    @abstractmethod
    def take(self, x: A, index: A, axis: int = 0) -> A:
        """A copy of the slices at these places of an axis, which is replaced by the index's axes."""

    @abstractmethod
    def take_along(self, x: A, index: A) -> A:
        """Elements of the last axis, by an index that has the same leading axes."""

    # ---- arithmetic, beside the array's own `+` and `*` ------------------------------------------------------

    @abstractmethod
    def matmul(self, a: A, b: A, *, transposed: bool = False) -> A:
        """`[..., m, k]` times `[..., k, n]`, or times the transpose of `[..., n, k]`; leading axes broadcast.

        Accumulates in float32 at least. The bits of a product do not depend on the other pairs of the batch.
        """

    @abstractmethod
    def divide(self, x: A | float, y: A | float) -> A:
        """At most one of the two is a float."""

    @abstractmethod
    def maximum(self, x: A, y: A | float) -> A:
        """The larger, element by element; NaN wins."""

    @abstractmethod
    def minimum(self, x: A, y: A | float) -> A:
        """The smaller, element by element; NaN wins."""

    @abstractmethod
    def less(self, x: A, y: A | float) -> A:
        """Booleans."""

    @abstractmethod
    def where(self, mask: A, x: A, y: A | float) -> A:
        """x where the mask is true, else y, in the type of x."""

    @abstractmethod
    def exp(self, x: A) -> A:
        """Overflows to infinity silently."""

    @abstractmethod
    def tanh(self, x: A) -> A: ...

    @abstractmethod
    def sqrt(self, x: A) -> A: ...

    @abstractmethod
    def log1p(self, x: A) -> A: ...

    @abstractmethod
    def abs(self, x: A) -> A: ...

    @abstractmethod
    def sign(self, x: A) -> A:
        """-1, 0 or 1."""

    @abstractmethod
    def finite(self, x: A) -> A:
        """NaN becomes 0, and infinities the largest finite values."""

    @abstractmethod
    def largest(self, x: A, axis: int) -> A:
        """The maximum over an axis, which stays with size 1."""

    @abstractmethod
    def argsort(self, x: A) -> A:
        """Indices that sort the last axis in descending order; of equals the lower index comes first."""

    # ---- given -----------------------------------------------------------------------------------------------

    def sum(self, x: A, axis: int) -> A:
        """The sum over an axis, which goes.

        Adjacent pairs are added until one is left, so that the order of additions follows from the axis's size alone,
        and zeros appended to the axis change no bit of the result.
        """
        rank = len(x.shape)
        axis %= rank
        before: tuple[slice, ...] = (slice(None),) * axis
        while (count := x.shape[axis]) > 1:
            even = count - count % 2
            paired: A = x[(*before, slice(0, even, 2))] + x[(*before, slice(1, even, 2))]
            x = paired if even == count else self.concat([paired, x[(*before, slice(even, count))]], axis)
        return self.reshape(x, (*x.shape[:axis], *x.shape[axis + 1 :]))
