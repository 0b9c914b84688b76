"""OpenTelemetry traces: one span a request, its phases as events, over the library's own exporter in memory."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tensorfold.contracts.observe import Outcome
from tensorfold.contracts.settings import PluginSettings
from tensorfold.errors import ConfigError, GenerationFailed
from tensorfold.http import create_app
from tensorfold.ir import Finished, Queued, Request, Stopped, TextDelta, TextPrompt, Timings, Usage
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scoring import ScoringEngine
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold.testing.toy_tokenizer import ToyTokenizer
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_decisions import decisions_dialect
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


TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def url(traces: RequestTraces) -> Iterator[str]:
    """A real server that chats and decides."""
    app = create_app(
        engine=ScoringEngine(MODEL, None, lambda prompt: dict.fromkeys(range(256), 1 / 256)),
        model=MODEL,
        dialects=[openai_dialect(), decisions_dialect()],
        observers=[traces],
        tokenizer=ToyTokenizer(),
    )
    with served(app) as url:
        yield url
    app.close()


def post(url: str, path: str, body: object, *headers: tuple[str, str]) -> None:
    assert httpx.post(url + path, json=body, headers=[*headers], trust_env=False).status_code == 200


CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
DECISION: dict[str, Any] = {
    "input": "x",
    "questions": [{"id": "q", "type": "score", "question": "?", "levels": ["low", "high"]}],
}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", CHAT),
        ("/v1/chat/completions", {**CHAT, "stream": True}),
        ("/v1/decisions", DECISION),
    ],
)
def test_a_span_is_a_child_of_the_callers(url: str, memory: InMemorySpanExporter, path: str, body: object) -> None:
    """Over `traceparent`; `tracestate` comes along, in one header or several."""
    sent = [("traceparent", f"00-{TRACE}-{CALLER}-01"), ("tracestate", "rojo=1"), ("tracestate", "congo=t61")]
    post(url, path, body, *sent)
    (span,) = memory.get_finished_spans()
    assert span.parent is not None and span.context is not None
    assert (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, CALLER)
    assert span.parent.is_remote
    assert span.context.trace_id == span.parent.trace_id
    assert dict(span.context.trace_state) == {"rojo": "1", "congo": "t61"}


def test_a_caller_that_does_not_sample_gets_no_span(url: str, memory: InMemorySpanExporter) -> None:
    post(url, "/v1/chat/completions", CHAT, ("traceparent", f"00-{TRACE}-{CALLER}-00"))
    assert memory.get_finished_spans() == ()


def test_a_later_version_of_the_header_is_read_as_this_one(url: str, memory: InMemorySpanExporter) -> None:
    post(url, "/v1/chat/completions", CHAT, ("traceparent", f"cc-{TRACE}-{CALLER}-01-what-the-future-will-be-like"))
    (span,) = memory.get_finished_spans()
    assert span.parent is not None and f"{span.parent.trace_id:032x}" == TRACE


@pytest.mark.parametrize(
    "parents",
    [
        [""],
        ["nonsense"],
        [f"ff-{TRACE}-{CALLER}-01"],
        [f"00-{TRACE.upper()}-{CALLER}-01"],
        [f"00-{'0' * 32}-{CALLER}-01"],
        [f"00-{TRACE}-{'0' * 16}-01"],
        [f"00-{TRACE}-{CALLER}-01-more"],
        [f"00-{TRACE}-{CALLER}-01", f"00-{TRACE}-{CALLER}-01"],
    ],
    ids=["empty", "nonsense", "version ff", "upper case", "no trace", "no span", "longer", "two of them"],
)
def test_a_malformed_parent_is_ignored(url: str, memory: InMemorySpanExporter, parents: list[str]) -> None:
    """The span begins a trace of its own, as the standard says, and the request is answered."""
    post(url, "/v1/chat/completions", CHAT, *(("traceparent", each) for each in parents), ("tracestate", "rojo=1"))
    (span,) = memory.get_finished_spans()
    assert span.parent is None
    assert span.context is not None and f"{span.context.trace_id:032x}" != TRACE
    assert len(span.context.trace_state) == 0


def test_a_malformed_state_is_dropped_and_the_parent_kept(url: str, memory: InMemorySpanExporter) -> None:
    sent = [("traceparent", f"00-{TRACE}-{CALLER}-01"), ("tracestate", "no equals sign")]
    post(url, "/v1/chat/completions", CHAT, *sent)
    (span,) = memory.get_finished_spans()
    assert span.parent is not None and f"{span.parent.trace_id:032x}" == TRACE
    assert span.context is not None and len(span.context.trace_state) == 0


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
    with pytest.raises(ConfigError, match=r"tensorfold\[otel\]"):
        exporting("http://localhost:4318", "x")
