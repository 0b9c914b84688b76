"""OpenTelemetry traces: one span a request, its phases as events, over the library's own exporter in memory."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tensorfold.contracts.observe import Outcome
from tensorfold.contracts.settings import PluginSettings
from tensorfold.errors import ConfigError, GenerationFailed, PluginUnavailable
from tensorfold.http import create_app
from tensorfold.ir import Finished, Queued, Request, Stopped, TextDelta, TextPrompt, Timings, Usage
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_openai import openai_dialect
from tensorfold_extra_otel import tensorfold_observers, tensorfold_settings
from tensorfold_extra_otel.exporting import exporting, traces_url
from tensorfold_extra_otel.traces import RequestTraces

END = 1_700_000_000_000_000_000


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(memory: InMemorySpanExporter) -> Iterator[RequestTraces]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    yield RequestTraces(provider.get_tracer("test"), clock=lambda: END)
    provider.shutdown()


def events(span: ReadableSpan) -> list[tuple[str, float]]:
    """Names, and seconds from the span's beginning."""
    assert span.start_time is not None
    return [(event.name, round((event.timestamp - span.start_time) / 1e9, 6)) for event in span.events]


def test_a_span_spans_the_request_and_its_events_are_its_phases(
    traces: RequestTraces, memory: InMemorySpanExporter
) -> None:
    asked = Request(id="r1", prompt=TextPrompt("secret words"), model="m", principal="alice")
    outcome = Outcome(200, "end", Usage(10, 5, 4), Timings(0.25, 0.5, 1.0), 2.0, 0.875)
    traces.started(asked, "/v1/completions")
    traces.ended(asked, "/v1/completions", outcome)
    (span,) = memory.get_finished_spans()
    assert (span.name, span.kind) == ("POST /v1/completions", SpanKind.SERVER)
    assert (span.start_time, span.end_time) == (END - 2_000_000_000, END)
    assert events(span) == [("queued", 0.0), ("prefill", 0.25), ("first token", 0.875), ("finished", 2.0)]
    facts = dict(span.attributes or {})
    assert facts["gen_ai.operation.name"] == "text_completion"
    assert (facts["gen_ai.usage.input_tokens"], facts["gen_ai.usage.output_tokens"]) == (10, 5)
    assert facts["tensorfold.usage.cached_tokens"] == 4
    assert (facts["tensorfold.key.label"], facts["tensorfold.request.id"]) == ("alice", "r1")
    assert span.status.status_code is StatusCode.UNSET
    assert "secret" not in span.to_json()


def test_a_request_that_fails_is_an_error_with_its_reason(traces: RequestTraces, memory: InMemorySpanExporter) -> None:
    asked = Request(id="r", prompt=TextPrompt("x"))
    traces.ended(asked, "/x", Outcome(500, "server_error", None, None, 0.5, None))
    traces.ended(asked, "/x", Outcome(499, "abort", Usage(1, 1), Timings(), 0.5, 0.1))
    failed, left = memory.get_finished_spans()
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "server_error")
    assert events(failed) == [("queued", 0.0), ("failed", 0.5)]
    assert left.status.status_code is StatusCode.ERROR


def test_every_request_of_a_server_has_one_span(traces: RequestTraces, memory: InMemorySpanExporter) -> None:
    def script(request: Request) -> Iterator[ScriptItem]:
        yield Queued(3)
        if request.model == "bad":
            yield GenerationFailed("broken")
        yield from (TextDelta(0, "ok"), Stopped(0, "end"))
        yield Finished(Usage(3, 1), Timings(), ("00",))

    app = create_app(
        engine=ScriptedEngine(MODEL, script),
        model=MODEL,
        dialects=[openai_dialect()],
        auth=[KeySource(flags=["sk-secret-key"])],
        observers=[traces],
    )
    for model in ("good", "bad"):
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
        ask(app, "POST", "/v1/chat/completions", body=body, headers={"x-api-key": "sk-secret-key"})
    app.close()
    spans = memory.get_finished_spans()
    assert [dict(span.attributes or {})["http.response.status_code"] for span in spans] == [200, 500]
    assert not any("sk-secret-key" in span.to_json() for span in spans)


def test_no_observer_is_there_until_an_endpoint_is_set() -> None:
    (table,) = tensorfold_settings()
    defaults = {setting.name: setting.default for setting in table.settings}
    assert list(tensorfold_observers(PluginSettings({table.name: defaults}))) == []


def test_an_endpoint_is_a_collectors_url() -> None:
    assert traces_url("http://localhost:4318") == "http://localhost:4318/v1/traces"
    assert traces_url("https://otel.example/tenant/v1/traces") == "https://otel.example/tenant/v1/traces"
    for wrong in ("localhost:4318", "grpc://x", "http://"):
        with pytest.raises(ConfigError, match="--otel-endpoint"):
            traces_url(wrong)


def test_without_the_library_the_start_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("opentelemetry.exporter"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PluginUnavailable, match=r"tensorfold\[otel\]"):
        exporting("http://localhost:4318", "x")
