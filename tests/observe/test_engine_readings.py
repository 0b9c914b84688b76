"""What `/metrics` reads off the real engine: it moves with the work, and falls back when the work is gone."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.events import LocalStream
from tensorfold.engine.settings import EngineSettings
from tensorfold.http import ServerSettings, create_app
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted import Script, Stall
from tensorfold.testing.serving import served
from tensorfold.testing.toy_engine import toy_engine
from tensorfold.testing.waiting import until
from tensorfold_dialect_llamacpp import llamacpp_dialect
from tensorfold_dialect_openai import openai_dialect

REPLY = tuple(b"a reply of some length")


@contextmanager
def serving(engine: LocalEngine) -> Iterator[httpx.Client]:
    """A real server over a real engine."""
    engine.start()
    app = create_app(engine=engine, model=MODEL, dialects=[openai_dialect(), llamacpp_dialect()])
    with (
        served(app, ServerSettings(port=0, drain_seconds=0.0)) as url,
        httpx.Client(base_url=url, timeout=20) as client,
    ):
        yield client


def readings(client: httpx.Client) -> dict[str, float]:
    """Every sample, by its name and the values of its labels."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        ":".join([sample.name, *sample.labels.values()]): sample.value
        for family in families
        for sample in family.samples
    }


def send(client: httpx.Client, **body: Any) -> socket.socket:
    """A streamed completion, whose answer nobody reads."""
    content = json.dumps({"model": "m", "stream": True, **body}).encode()
    connection = socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=20)
    head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % len(content) + content)
    return connection


@pytest.fixture
def cancelled(monkeypatch: pytest.MonkeyPatch) -> set[LocalStream]:
    """The requests that the front has cancelled so far: once in here, none of them can come to its own end."""
    streams: set[LocalStream] = set()
    cancel = LocalStream.cancel

    def seen(stream: LocalStream) -> None:
        cancel(stream)
        streams.add(stream)

    monkeypatch.setattr(LocalStream, "cancel", seen)
    return streams


@pytest.mark.requirement("Y-187", "Y-188")
def test_tokens_count_while_a_request_runs_and_stay_when_it_is_cancelled(cancelled: set[LocalStream]) -> None:
    """`prompt_tokens_total` and `tokens_predicted_total` move during a request and keep a cancelled one's tokens."""
    stall = Stall()
    engine = toy_engine([Script(tuple(b"a prompt of two chunks"), REPLY, at={5: stall})])
    with serving(engine) as client:
        connection = send(client, prompt="a prompt of two chunks", max_tokens=20)
        until(stall.entered.is_set)
        running = readings(client)
        assert running["tabbyapi:prompt_tokens_total"] == 22
        assert running["tabbyapi:tokens_predicted_total"] == 5
        assert running["tensorfold:requests_running"] == 1
        connection.close()
        until(lambda: len(cancelled) == 1)
        stall.release.set()
        until(lambda: readings(client)["tensorfold:requests_running"] == 0)
        ended = readings(client)
        assert ended["tabbyapi:prompt_tokens_total"] == 22
        assert 5 <= ended["tabbyapi:tokens_predicted_total"] < 20
        assert ended["tabbyapi:n_tokens_max"] >= 27


@pytest.mark.requirement("T-308")
def test_gauges_fall_back_when_all_clients_leave_at_once(cancelled: set[LocalStream]) -> None:
    """MT-01: eight streams and four queued requests are dropped; counts and cache use are what they were before."""
    stall = Stall()
    engine = toy_engine([Script(tuple(b"first"), REPLY, at={3: stall})], lanes=8)
    watched = ("tensorfold:requests_running", "tensorfold:requests_waiting", "tensorfold:kv_cache_usage_ratio:main")
    with serving(engine) as client:
        idle = readings(client)
        connections = [send(client, prompt="first", max_tokens=20)]
        until(stall.entered.is_set)
        connections += [send(client, prompt=f"{number} other", max_tokens=20) for number in range(11)]
        until(lambda: sum(readings(client)[name] for name in watched[:2]) == 12)
        busy = readings(client)
        assert busy["tensorfold:requests_running"] == 1 and busy["tensorfold:requests_waiting"] == 11
        for connection in connections:
            connection.close()
        until(lambda: len(cancelled) == 12)
        stall.release.set()
        until(lambda: all(readings(client)[name] == idle[name] for name in watched))
        until(lambda: readings(client)["tensorfold:client_disconnections_total"] == 12)


@pytest.mark.requirement("T-035", "T-301", "T-302", "T-306")
def test_a_scrape_of_a_running_server_has_requests_cache_drafts_and_latency() -> None:
    """`GET /metrics` is Prometheus text with requests, KV occupancy, drafts and latency, under both servers' names."""
    stall = Stall()
    engine = toy_engine([Script(tuple(b"first"), REPLY, at={3: stall})], wrong=0)
    with serving(engine) as client:
        whole = client.post("/v1/completions", json={"model": "m", "prompt": "second", "max_tokens": 12})
        assert whole.status_code == 200
        connection = send(client, prompt="first", max_tokens=20)
        until(stall.entered.is_set)
        seen = readings(client)
        assert 0 < seen["tensorfold:kv_cache_usage_ratio:main"] < 1
        assert seen["tensorfold:kv_cache_usage_ratio:main"] == seen["tensorfold:kv_cache_usage_perc:main"]
        assert seen["tensorfold:kv_cache_usage_ratio:main"] == seen["tabbyapi:kv_cache_usage_ratio"]
        assert seen["tensorfold:mtp_drafted_total"] >= seen["tensorfold:mtp_accepted_total"] > 0
        for name, twin in (
            ("requests_running", "num_requests_running"),
            ("requests_waiting", "num_requests_waiting"),
            ("mtp_drafted_total", "spec_decode_num_draft_tokens_total"),
            ("mtp_accepted_total", "spec_decode_num_accepted_tokens_total"),
            ("request_latency_seconds_sum", "e2e_request_latency_seconds_sum"),
            ("request_decode_seconds_sum", "request_decode_time_seconds_sum"),
        ):
            assert seen[f"tensorfold:{name}"] == seen[f"tensorfold:{twin}"]
        assert seen["tensorfold:request_latency_seconds_count"] == seen["tensorfold:request_decode_seconds_count"] == 1
        assert seen["tensorfold:time_to_first_token_seconds_count"] == 1
        connection.close()
        stall.release.set()


@pytest.mark.requirement("Y-183", "T-298")
def test_only_steps_that_verified_guesses_count_as_drafts() -> None:
    """Of `spec_decode_num_drafts_total` dashboards make the tokens that a draft gives; a serial reply has no drafts."""
    with serving(toy_engine(wrong=0)) as client:
        body = {"model": "m", "prompt": "a prompt", "max_tokens": 12}
        serial = client.post("/v1/completions", json={**body, "draft": False}).json()
        seen = readings(client)
        assert "draft_n" not in serial["timings"]
        assert seen["tabbyapi:spec_decode_num_drafts_total"] == seen["tabbyapi:spec_decode_num_draft_tokens_total"] == 0
        drafted = client.post("/v1/completions", json=body).json()
        seen = readings(client)
        drafts, tokens = seen["tabbyapi:spec_decode_num_drafts_total"], drafted["timings"]["draft_n"]
        assert tokens == seen["tabbyapi:spec_decode_num_draft_tokens_total"]
        assert 0 < drafts <= tokens
        # A step gives a token of its own besides those of its draft.
        assert drafts <= 12 - seen["tabbyapi:spec_decode_num_accepted_tokens_total"]


@pytest.mark.requirement("T-303", "Y-194")
def test_what_was_refused_or_failed_has_no_latency() -> None:
    """It would make the latencies of replies look shorter than anybody's reply took."""
    histograms = (
        "tensorfold:request_latency_seconds",
        "tensorfold:e2e_request_latency_seconds",
        "tabbyapi:e2e_request_latency_seconds",
        "tabbyapi:request_queue_time_seconds",
    )
    with serving(toy_engine()) as client:
        body = {"model": "m", "prompt": "a prompt", "max_tokens": 2}
        for refused in ({"max_tokens": 1 << 30}, {"stop_token_ids": [1 << 30]}, {"guided_regex": "("}):
            assert client.post("/v1/completions", json={**body, **refused}).status_code == 400
        assert {readings(client)[f"{name}_count"] for name in histograms} == {0}
        assert client.post("/v1/completions", json=body).status_code == 200
        assert {readings(client)[f"{name}_count"] for name in histograms} == {1}


@pytest.mark.requirement("T-309")
def test_a_lane_that_background_gave_up_is_counted() -> None:
    """`preemptions_total` counts background replies that gave their lane to a later request."""
    stall = Stall()
    engine = toy_engine(
        [Script(tuple(b"background"), REPLY, at={4: stall})], lanes=1, settings=EngineSettings(prefix_bytes=0)
    )
    with serving(engine) as client:
        assert readings(client)["tensorfold:preemptions_total"] == 0
        # Drafted, the step that is held could be its last.
        connection = send(client, prompt="background", max_tokens=20, priority="background", draft=False)
        until(stall.entered.is_set)
        other = send(client, prompt="foreground", max_tokens=3)
        # Its status line is sent once the engine has it; until then it only counts as waiting.
        assert other.recv(12) == b"HTTP/1.1 200"
        assert readings(client)["tensorfold:requests_waiting"] == 1
        stall.release.set()
        until(lambda: readings(client)["tensorfold:preemptions_total"] == 1)
        connection.close()
        other.close()
