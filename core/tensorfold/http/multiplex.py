"""Several requests answered as one: choices numbered through, request by request, and usage summed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from tensorfold.ir import (
    Event,
    Failed,
    Finished,
    Progress,
    Queued,
    Started,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Timings,
    ToolCallDelta,
    Usage,
)

__all__ = ["Multiplexer"]


class Multiplexer:
    """Turns the events of several requests into those of one. Pure; made for one exchange."""

    def __init__(self, choices: Sequence[int]) -> None:
        """`choices`: how many each request has."""
        self._offsets = (0, *accumulate(choices))[:-1]
        self._queued: dict[int, Queued] = {}
        self._started: dict[int, Started] = {}
        self._progress: dict[int, Progress] = {}
        self._finished: dict[int, Finished] = {}
        self._failed = False

    def feed(self, index: int, event: Event) -> Event | None:
        """What the next event of request `index` adds to the joint stream; None: nothing yet."""
        if self._failed:
            return None
        offset = self._offsets[index]
        if not offset and isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta | Stopped):
            return event
        match event:
            case Queued():
                self._queued[index] = event
                return self._all_queued()
            case Started():
                self._started[index] = event
                return self._all_started()
            case Progress():
                self._progress[index] = event
                return self._joint_progress()
            case TextDelta(choice, text, tokens):
                return TextDelta(offset + choice, text, tokens, event.count)
            case ThinkingDelta(choice, text, tokens):
                return ThinkingDelta(offset + choice, text, tokens, event.count)
            case ToolCallDelta(choice):
                return ToolCallDelta(offset + choice, event.index, event.id, event.name, event.arguments, event.count)
            case Stopped(choice, reason, detail):
                return Stopped(offset + choice, reason, detail, event.ended_by)
            case Finished():
                self._finished[index] = event
                return self._all_finished()
            case Failed():
                self._failed = True
                return event

    def _all_queued(self) -> Queued | None:
        if len(self._queued) < len(self._offsets):
            return None
        return Queued(sum(event.prompt_tokens for event in self._queued.values()))

    def _all_started(self) -> Started | None:
        if len(self._started) < len(self._offsets):
            return None
        return Started(sum(event.cached_tokens for event in self._started.values()))

    def _joint_progress(self) -> Progress:
        latest = self._progress.values()
        return Progress(
            processed=sum(event.processed for event in latest),
            total=sum(event.prompt_tokens for event in self._queued.values()),
            cached=sum(event.cached for event in latest),
            seconds=max(event.seconds for event in latest),
        )

    def _all_finished(self) -> Finished | None:
        if len(self._finished) < len(self._offsets):
            return None
        ends = [self._finished[index] for index in range(len(self._offsets))]
        usages = [end.usage for end in ends]
        timings = [end.timings for end in ends]
        return Finished(
            usage=Usage(
                prompt_tokens=sum(usage.prompt_tokens for usage in usages),
                completion_tokens=sum(usage.completion_tokens for usage in usages),
                cached_tokens=sum(usage.cached_tokens for usage in usages),
                reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
                drafted_tokens=sum(usage.drafted_tokens for usage in usages),
                accepted_tokens=sum(usage.accepted_tokens for usage in usages),
            ),
            # They ran side by side, so the longest of each is what the client has waited for.
            timings=Timings(
                queued=max(timing.queued for timing in timings),
                prefill=max(timing.prefill for timing in timings),
                decode=max(timing.decode for timing in timings),
            ),
            token_sha=tuple(sha for end in ends for sha in end.token_sha),
        )
