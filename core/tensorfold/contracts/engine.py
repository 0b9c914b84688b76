"""The engine as the front sees it: requests in, events out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

from tensorfold.contracts.chat import Tokenizer
from tensorfold.ir import JSON, Event, Request, Score, Scored

__all__ = [
    "CanCheck",
    "CanScore",
    "Engine",
    "EngineStatus",
    "EventStream",
    "ModelInfo",
    "PreparedPrompt",
    "PushesEvents",
    "Services",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """The served model, for dialects to describe."""

    id: str
    """The served ID."""
    aliases: tuple[str, ...]
    created: int
    """Seconds since the epoch."""
    family: str
    backend: str
    window: int
    """The effective context: prompt and reply together."""
    trained_window: int
    """The checkpoint's own."""
    vocabulary: int
    parameters: int
    capabilities: frozenset[str] = frozenset()
    bos_token: str | None = None
    eos_token: str | None = None
    chat_template: str | None = None
    path: str = ""
    """Where the checkpoint is; empty: nowhere that a client should know."""
    width: int = 0
    """Of the hidden rows (`hidden_size`); 0: not known, as for the next two."""
    weights_bytes: int = 0
    """Of the stored weights."""
    lanes: int = 0
    """Replies that can be computed at once."""


@dataclass(frozen=True, slots=True)
class PreparedPrompt:
    """A prompt as the engine will run it."""

    ids: tuple[int, ...]
    text: str | None = None
    """What the template rendered; None for prompts that were given as tokens."""
    markers: tuple[int, ...] = ()
    """Positions at which the template's messages open, ascending; a function of the ids alone."""
    thinking: bool | None = None
    """Whether the reply shall have reasoning; None: as the model does by default, or no conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """The engine at this moment, read without its lock."""

    healthy: bool
    """False when a round has not returned for too long, or the thread is gone."""
    problem: str | None = None
    running: int = 0
    waiting: int = 0
    details: Mapping[str, JSON] = field(default_factory=dict[str, JSON])
    """Counters and sizes for `/health`."""


class EventStream(Protocol):
    """The events of one request, as an asynchronous iterator. The last is `Finished` or `Failed`."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Event: ...

    def cancel(self) -> None:
        """Nobody waits any more: the request ends at the next round. Harmless when it has ended."""
        ...


@runtime_checkable
class PushesEvents(Protocol):
    """What an event stream may offer besides: to hand events over as they come, with no task that waits for each.

    PERF: an event that is waited for costs twice what its bytes do; and there is one for each token.
    """

    def attach(self, sink: Callable[[Event], None]) -> None:
        """Hand over what waits, and each further event when it comes, on the event loop; iterate no more.

        The sink must not raise. It is called with the last event, `Finished` or `Failed`, and never after.
        """
        ...


class Engine(Protocol):
    """Runs requests; an engine of another make, or on another machine, can stand here."""

    async def submit(self, request: Request) -> EventStream:
        """Check and queue a request. `Queued` is the stream's first event and is there at once.

        Raises:
            RequestError: it cannot be run (400), or not now (429, 503). Nothing was queued.
        """
        ...

    async def prepare(self, request: Request) -> PreparedPrompt:
        """Render and tokenize the prompt as `submit` would, without running it.

        Raises:
            RequestError: the template refuses it, or it holds an id that does not exist.
        """
        ...

    def status(self) -> EngineStatus: ...

    async def close(self, grace: float) -> None:
        """Refuse new requests, let the running ones finish for `grace` seconds, then abort them and stop."""
        ...


@runtime_checkable
class CanCheck(Protocol):
    """What an engine may offer besides; with it, what cannot be run is refused before others of the same body are answered."""

    async def check(self, request: Request) -> None:
        """Whether `submit` would take a request, but for the room that it finds. Nothing is queued.

        Raises:
            RequestError: it can never be run (400), or too much is being read to look at it now (503).
        """
        ...


@runtime_checkable
class CanScore(Protocol):
    """What an engine may offer besides."""

    async def score(self, request: Score) -> Scored:
        """How likely each label is to come next; the prompt is computed once for all of them.

        Raises:
            RequestError: it cannot be run (400), not now (429, 503), or it has failed.
        """
        ...


class Services(Protocol):
    """What a dialect's plain resources may use."""

    @property
    def engine(self) -> Engine: ...

    @property
    def model(self) -> ModelInfo: ...

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The model's; None when the engine runs elsewhere and keeps it there."""
        ...
