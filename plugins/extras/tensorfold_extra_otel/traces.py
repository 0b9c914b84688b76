"""One span a request, made when it has ended, with the times that are known by then. It holds no prompt and no reply."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tensorfold.contracts.observe import Outcome
from tensorfold.ir import Chat, Request, TraceContext

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Tracer

__all__ = ["RequestTraces"]

SECOND = 1_000_000_000
"""In nanoseconds."""


class RequestTraces:
    """Implements `contracts.observe.Observer`."""

    def __init__(self, tracer: Tracer, clock: Callable[[], int] = time.time_ns) -> None:
        """`clock`: nanoseconds since the epoch."""
        self._tracer = tracer
        self._clock = clock

    def started(self, request: Request, endpoint: str) -> None:
        """A span begins and ends at once, when all is known."""

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        """Make the span."""
        from opentelemetry.trace import SpanKind, Status, StatusCode

        end = self._clock()
        start = end - int(outcome.seconds * SECOND)
        span = self._tracer.start_span(
            f"POST {endpoint}",
            context=None if request.trace is None else _parent(request.trace),
            kind=SpanKind.SERVER,
            start_time=start,
            attributes={**dict(_asked(request, endpoint)), **dict(_came_of(outcome))},
        )
        for name, seconds in _phases(outcome):
            span.add_event(name, timestamp=start + int(seconds * SECOND))
        if outcome.status >= 400:
            span.set_status(Status(StatusCode.ERROR, outcome.reason))
        span.end(end)


def _parent(trace: TraceContext) -> Context:
    """The caller's span. What the standard calls invalid gives an empty context: the span begins a trace of its own."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({"traceparent": trace.parent, "tracestate": trace.state})


def _asked(request: Request, endpoint: str) -> Iterator[tuple[str, str | int | float | bool]]:
    """In the words of OpenTelemetry's conventions for generative models, where they have one."""
    yield "gen_ai.operation.name", "chat" if isinstance(request.prompt, Chat) else "text_completion"
    yield "gen_ai.request.model", request.model
    yield "http.route", endpoint
    yield "tensorfold.request.id", request.id
    yield "tensorfold.request.priority", request.priority
    if request.principal:
        yield "tensorfold.key.label", request.principal
    for name, value in (
        ("temperature", request.sampling.temperature),
        ("top_p", request.sampling.top_p),
        ("max_tokens", request.limits.max_tokens),
    ):
        if value is not None:
            yield f"gen_ai.request.{name}", value
    yield "gen_ai.request.choice.count", request.choices


def _came_of(outcome: Outcome) -> Iterator[tuple[str, str | int | float]]:
    yield "http.response.status_code", outcome.status
    yield "tensorfold.outcome", outcome.reason
    if outcome.usage is not None:
        yield "gen_ai.usage.input_tokens", outcome.usage.prompt_tokens
        yield "gen_ai.usage.output_tokens", outcome.usage.completion_tokens
        yield "tensorfold.usage.cached_tokens", outcome.usage.cached_tokens
        yield "tensorfold.usage.drafted_tokens", outcome.usage.drafted_tokens
        yield "tensorfold.usage.accepted_tokens", outcome.usage.accepted_tokens
    if outcome.timings is not None:
        yield "tensorfold.seconds.queued", outcome.timings.queued
        yield "tensorfold.seconds.prefill", outcome.timings.prefill
        yield "tensorfold.seconds.decode", outcome.timings.decode


def _phases(outcome: Outcome) -> Iterator[tuple[str, float]]:
    """What began when, in seconds from the request's arrival, in order."""
    yield "queued", 0.0
    if outcome.timings is not None:
        yield "prefill", min(outcome.timings.queued, outcome.seconds)
    if outcome.first_token_seconds is not None:
        yield "first token", outcome.first_token_seconds
    yield "finished" if outcome.usage is not None and outcome.status < 400 else "failed", outcome.seconds
