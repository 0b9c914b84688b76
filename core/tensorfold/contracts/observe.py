"""Those who are told of each request's start and outcome; never in the token path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tensorfold.ir import Request, Timings, Usage

__all__ = ["Observer", "Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended."""

    status: int
    """The HTTP status that a whole answer has or would have had; 499: the client left."""
    reason: str
    """The first choice's stop reason, or the error's type."""
    usage: Usage | None
    timings: Timings | None
    seconds: float
    """From arrival to end."""
    first_token_seconds: float | None
    """From arrival to the first delta; None: there was none."""
    token_sha: tuple[str, ...] = ()
    """Of each choice's ids; empty: the reply did not finish."""


@runtime_checkable
class Observer(Protocol):
    """An exporter or a log. What it raises is logged and harms nobody.

    A question whose labels are scored is told of as a request for one token, which ends without one.
    """

    def started(self, request: Request, endpoint: str) -> None:
        """A request was decoded and is about to be submitted."""
        ...

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        """It has ended, in whatever way."""
        ...
