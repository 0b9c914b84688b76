"""Who may call: sources of principals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["AuthSource", "Credentials", "Principal"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request's headers offer. Never logged; has no readable repr."""

    bearer: str | None
    """From `Authorization: Bearer`."""
    api_key: str | None
    """From `x-api-key`."""

    def __repr__(self) -> str:
        return "Credentials(...)"

    @property
    def offered(self) -> tuple[str, ...]:
        """Every key that was offered."""
        return tuple(key for key in (self.bearer, self.api_key) if key)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who was recognized."""

    label: str
    """A non-secret name for logs and metrics."""
    scope: Literal["api", "admin"] = "api"


class AuthSource(Protocol):
    """Recognizes callers. `identify` is synchronous, does no I/O and never raises on junk."""

    @property
    def name(self) -> str:
        """Unique among sources."""
        ...

    @property
    def guards(self) -> bool:
        """Whether it asks for a credential at all; when no source does, all routes are open."""
        ...

    @property
    def description(self) -> str:
        """For the start-up block (`3 keys`)."""
        ...

    def identify(self, credentials: Credentials) -> Principal | None:
        """The caller, or None. Takes the same time whichever key matches."""
        ...

    def refresh(self) -> None:
        """Look whether what it reads has changed; called about once a second, off the event loop; never raises."""
        ...

    def reload(self) -> None:
        """Read everything again at once (SIGHUP); never raises: a bad source recognizes nobody."""
        ...
