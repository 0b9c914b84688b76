"""Token-level control: masks and forced tokens as pure functions of the tokens before them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Gate", "ReplacingGate"]


class Gate(Protocol):
    """Looks back only, so that drafted, batched and serial replies pass it alike.

    A state is an immutable value: `advance` makes a new one, and going back is keeping the old one.
    """

    @property
    def start(self) -> Hashable:
        """The state before the first reply token."""
        ...

    def advance(self, state: Hashable, token: int) -> Hashable:
        """The state after one more token."""
        ...

    def forced(self, state: Hashable) -> int | None:
        """The token that must come next, or None."""
        ...

    def allowed(self, state: Hashable) -> NDArray[np.bool_] | None:
        """`[V]`: which tokens may come next; None: all. Read only when nothing is forced; not to be written to."""
        ...


@runtime_checkable
class ReplacingGate(Gate, Protocol):
    """A gate that lets the model draw, and then may put another token in place of the one that was drawn."""

    def replaced(self, state: Hashable, token: int) -> int:
        """What is kept of a drawn token that was not forced: the token itself, or another. `advance` sees that one."""
        ...
