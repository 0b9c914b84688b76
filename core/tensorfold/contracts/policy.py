"""The three decisions of scheduling that plugins may replace, and the filters that requests pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from tensorfold.ir import Request

__all__ = ["Load", "RequestFilter", "Running", "SchedulerPolicy", "Waiting"]


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the engine is."""

    running: int
    """Requests that hold a slot."""
    waiting: int
    lanes: int
    """The most choices that may run at once."""
    free_tokens: int
    """Positions that could be given out now, those of unused kept prefixes included."""


class Waiting(msgspec.Struct, frozen=True):
    """A request whose prompt is not wholly computed, as a policy sees it."""

    id: str
    priority: Literal["foreground", "background"]
    arrived: float
    """Monotonic seconds."""
    tokens_left: int
    """Prompt tokens still to compute."""
    passed_over: int
    """How often another prompt's chunk went first since its own last one."""
    started: bool
    """Whether some of its prompt is computed already."""


class Running(msgspec.Struct, frozen=True):
    """A request that generates, as a policy sees it."""

    id: str
    priority: Literal["foreground", "background"]
    started: float
    """Monotonic seconds."""
    tokens: int
    """Positions held."""


class SchedulerPolicy(Protocol):
    """Who may enter, whose chunk is next, who yields. Pure decisions over numbers; the arithmetic is the core's."""

    @property
    def name(self) -> str:
        """What `--scheduler` picks."""
        ...

    def admit(self, request: Request, load: Load) -> None:
        """Let a request into the queue.

        Raises:
            Rejected: the server is too full for it.
        """
        ...

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        """A permutation: whose prompt chunk goes first. Must starve nobody."""
        ...

    def victim(self, running: Sequence[Running], wanting: Waiting | None) -> Running | None:
        """Who yields its memory or lane to `wanting` (None: to the older streams); None: nobody."""
        ...


class RequestFilter(Protocol):
    """Sees every request after decoding and before admission (quotas, presets). A prompt that is only counted, shown or
    scored passes too, as a request for it: of a list of prompts each one, and each question of a decision.

    One that is an `Observer` as well is told of each request's start and outcome.
    """

    @property
    def name(self) -> str:
        """Unique among filters."""
        ...

    def apply(self, request: Request) -> Request:
        """The request, or a changed one.

        Raises:
            RequestError: it may not run.
        """
        ...
