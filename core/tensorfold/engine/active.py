"""A job while it runs: its choices, its stream, and what is counted for its last event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensorfold.engine.drafts import Chances
from tensorfold.engine.events import LocalStream
from tensorfold.engine.job import Job
from tensorfold.engine.plan import Chunk
from tensorfold.engine.sequence import Sequence
from tensorfold.ir import Event, Finished, TextDelta, Timings, TokenInfo, Usage

__all__ = ["ActiveRequest", "Entry"]


@dataclass(slots=True, eq=False)
class Entry:
    """One choice's place in the schedule."""

    active: ActiveRequest
    sequence: Sequence
    id: str
    """Unique in this engine."""
    priority: Literal["foreground", "background"]
    """The request's."""
    prompt_tokens: int
    """Of the prompt, all of them."""
    slot: int | None = None
    """The Runner's slot; None: it waits."""
    computed: int = 0
    """Prompt tokens in its states (or, while it waits, in those kept for it)."""
    passed_over: int = 0
    """Chunks given to others since its own last one."""
    admitted: float = 0.0
    """When it got its slot, in monotonic seconds."""

    @property
    def prompt_done(self) -> bool:
        """Whether all of the prompt is computed."""
        return self.computed == self.prompt_tokens

    @property
    def next_chunk(self) -> Chunk:
        """What of the prompt is computed next."""
        chunk = next(chunk for chunk in self.sequence.job.chunks if chunk.end > self.computed)
        return Chunk(max(chunk.start, self.computed), chunk.end)

    @property
    def prompt_left(self) -> int:
        """Prompt tokens still to compute."""
        return self.prompt_tokens - self.computed


class ActiveRequest:
    """One request in the engine."""

    def __init__(
        self, number: int, job: Job, stream: LocalStream, arrived: float, chances: Chances | None = None
    ) -> None:
        """`number` is the request's own in this engine; `arrived` is in monotonic seconds; `chances` are the engine's.

        Raises:
            Exception: what the family's parser or a drafter raises; the request cannot be run then.
        """
        self.job = job
        self.arrived = arrived
        self.ended = False
        """Its last event is posted."""
        self.entries = tuple(
            Entry(
                active=self,
                sequence=Sequence(job, choice, chances),
                id=f"{number}.{choice}:{job.request.id}",
                priority=job.request.priority,
                prompt_tokens=len(job.ids),
            )
            for choice in range(job.choices)
        )
        self.sleeping = list(self.entries[1:])
        """Choices that share the first one's prompt and wait until it is computed."""
        self.keep: set[int] = set()
        """Starts of the prompt's chunks that are kept for others when they are computed."""
        self.cached = 0
        """Prompt tokens that came from a kept prefix when the request first began."""
        self.prompt_tokens: list[TokenInfo] = []
        """Of a prompt whose echo has log-probabilities: its tokens so far."""
        self.scores: dict[tuple[int, ...], list[float]] = {}
        """Log-probabilities of the tokens of each continuation that was scored so far."""
        self.top: int | None = None
        """The likeliest token behind the prompt, when its continuations are scored."""
        self.stream = stream
        """Where its events go."""
        self._echoed = False
        self._began: float | None = None
        self._first_token: float | None = None
        self._reached = 0

    def post(self, *events: Event) -> None:
        """Send events with this round's other ones."""
        for event in events:
            self.stream.post(event)

    def reached(self, computed: int) -> bool:
        """So much of the prompt is computed; False when it was so before (a prompt that is computed again)."""
        further = computed > self._reached
        self._reached = max(self._reached, computed)
        return further

    def echo(self) -> None:
        """Begin every choice with the prompt's text, once, if that was asked for."""
        if self._echoed or not self.job.request.echo:
            return
        self._echoed = True
        text, tokens = self.job.echo_text(), tuple(self.prompt_tokens)
        count = 0 if self.job.request.counted else None
        self.post(*(TextDelta(choice, text, tokens, count) for choice in range(self.job.choices)))

    # ---- times ---------------------------------------------------------------------------------------------

    def begin(self, now: float, cached: int) -> bool:
        """Its first chunk is about to run, behind `cached` positions that were kept; False if that was so before."""
        if self._began is not None:
            return False
        self._began, self.cached = now, cached
        return True

    def since_begin(self, now: float) -> float:
        """Seconds since its first chunk began."""
        return 0.0 if self._began is None else now - self._began

    @property
    def began_reply(self) -> bool:
        """Whether a token was kept."""
        return self._first_token is not None

    def first_token(self, now: float) -> None:
        """A token was kept."""
        if self._first_token is None:
            self._first_token = now

    def timings(self, now: float) -> Timings:
        """Where the time went, up to now."""
        began = now if self._began is None else self._began
        first = now if self._first_token is None else self._first_token
        return Timings(queued=began - self.arrived, prefill=first - began, decode=now - first)

    # ---- the end -------------------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether every choice has stopped."""
        return all(entry.sequence.stopped is not None for entry in self.entries)

    @property
    def unscored(self) -> list[tuple[int, ...]]:
        """Continuations that have some tokens left to be scored."""
        return [ids for ids in self.job.scored if len(self.scores.get(ids, ())) < len(ids)]

    def usage(self) -> Usage:
        """Tokens counted over all choices."""
        sequences = [entry.sequence for entry in self.entries]
        return Usage(
            prompt_tokens=len(self.job.ids),
            cached_tokens=self.cached,
            completion_tokens=sum(each.count for each in sequences),
            reasoning_tokens=sum(each.reasoning_tokens for each in sequences),
            drafted_tokens=sum(each.drafted for each in sequences),
            accepted_tokens=sum(each.accepted for each in sequences),
        )

    def finished(self, now: float) -> Finished:
        """The last event."""
        return Finished(self.usage(), self.timings(now), tuple(entry.sequence.sha for entry in self.entries))
