"""A way to write to a client that never waits, which the server's own HTTP protocol offers besides ASGI's `send`.

PERF: `send` can only be awaited, so that each token's event would wake a task, through every layer that waits in it. That
costs more than the event's bytes do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

__all__ = ["EXTENSION", "Outlet", "outlet_of"]

EXTENSION = "tensorfold.outlet"
"""Its name among the extensions of an ASGI scope. Servers that do not have it are written to by `send` alone."""


class Outlet(Protocol):
    """One response's body, from when its head has been sent. What `send` was given before goes first."""

    @property
    def ready(self) -> bool:
        """Whether a piece can be written now: the client is there, and takes what it is sent."""
        ...

    def write(self, piece: bytes) -> None:
        """Write a piece of the body; only while `ready`."""
        ...


def outlet_of(scope: Mapping[str, Any]) -> Outlet | None:
    """What the server of this request offers."""
    # PERF: what has this name is one; looking for a Protocol's members would cost each request some microseconds.
    return cast("Outlet | None", scope.get("extensions", {}).get(EXTENSION))
