"""What clients of llama.cpp's server ask, over HTTP."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import openai
import pytest

from tensorfold.chat.prompt import PromptBuilder
from tensorfold.contracts.engine import EngineStatus
from tensorfold.http import Application, create_app
from tensorfold.ir import Finished, Progress, Queued, Request, Started, Stopped, TextDelta, Timings, Usage
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold_dialect_llamacpp import llamacpp_dialect
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_vllm import vllm_dialect

SHOWN = dataclasses.replace(
    MODEL,
    path="/models/quokka",
    width=576,
    weights_bytes=269_000_000,
    lanes=4,
    chat_template="{{ messages }}",
    bos_token="<s>",
    eos_token="</s>",
    capabilities=frozenset({"tools"}),
)
HI: list[Any] = [{"role": "user", "content": "hi <|im_end|>"}]


class CountingEngine(ScriptedEngine):
    """Has totals."""

    totals: ClassVar[dict[str, Any]] = {}

    def status(self) -> EngineStatus:
        return EngineStatus(healthy=True, running=2, waiting=1, details=self.totals)


def script(request: Request) -> Iterator[ScriptItem]:
    """A prompt of three chunks, the first of which was kept."""
    yield from (Queued(30), Started(10))
    if request.progress:
        yield from (Progress(20, 30, 10, 0.25), Progress(30, 30, 10, 0.5))
    yield from (TextDelta(0, "ok"), Stopped(0, "end"))
    yield Finished(
        Usage(30, 5, cached_tokens=10, drafted_tokens=4, accepted_tokens=3), Timings(0.0, 0.5, 0.25), ("00",)
    )


@pytest.fixture
def engine(prompts: PromptBuilder) -> CountingEngine:
    return CountingEngine(SHOWN, script, prompts)


@pytest.fixture
def app(engine: CountingEngine) -> Iterator[Application]:
    dialects = [llamacpp_dialect(), openai_dialect(), vllm_dialect()]
    app = create_app(engine=engine, model=SHOWN, dialects=dialects)
    yield app
    app.close()


def shown(app: Application, path: str) -> dict[str, Any]:
    answered = ask(app, "GET", path)
    assert answered.status == 200, answered.body
    body: dict[str, Any] = json.loads(answered.body)
    return body


@pytest.mark.requirement("Y-008")
def test_the_properties_of_the_model(app: Application) -> None:
    """`model_path`, the window, `total_slots`, `chat_template`, `modalities.vision`."""
    props = shown(app, "/props")
    assert props["model_path"] == "/models/quokka"
    assert props["default_generation_settings"] == {"n_ctx": MODEL.window}
    assert props["total_slots"] == 4
    assert props["chat_template"] == "{{ messages }}"
    assert props["modalities"] == {"vision": False, "video": False, "audio": False}
    assert (props["bos_token"], props["eos_token"]) == ("<s>", "</s>")


@pytest.mark.requirement("Y-009", "Y-010", "Y-011")
def test_the_entry_of_a_model(app: Application) -> None:
    """`meta` with the checkpoint's own numbers and the served window; `max_model_len` repeats the latter."""
    entry = shown(app, "/v1/models")["data"][0]
    assert entry["meta"] == {
        "n_ctx": MODEL.window,
        "n_ctx_train": MODEL.trained_window,
        "n_vocab": MODEL.vocabulary,
        "n_params": MODEL.parameters,
        "n_embd": 576,
        "size": 269_000_000,
    }
    assert entry["max_model_len"] == MODEL.window
    assert entry["aliases"] == ["quokka"]
    assert entry["architecture"] == {"input_modalities": ["text"], "output_modalities": ["text"]}


def test_every_place_tells_the_same_window(app: Application) -> None:
    entry = shown(app, "/v1/models")["data"][0]
    tokens = json.loads(ask(app, "POST", "/tokenize", body=b'{"prompt": "hi"}').body)
    props = shown(app, "/props")
    places = {entry["meta"]["n_ctx"], entry["max_model_len"], props["default_generation_settings"]["n_ctx"]}
    assert places == {tokens["max_model_len"]} == {MODEL.window}


@pytest.mark.requirement("Y-012")
@pytest.mark.parametrize("path", ["/apply-template", "/v1/apply-template"])
def test_messages_are_rendered(app: Application, engine: CountingEngine, path: str) -> None:
    """`{"prompt": ...}`, and nothing is generated."""
    answered = ask(app, "POST", path, body=json.dumps({"messages": HI}).encode())
    rendered = "<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert json.loads(answered.body) == {"prompt": rendered}
    assert engine.requests == []


@pytest.mark.requirement("Y-014", "Y-015", "Y-016")
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/chat/completions", {"messages": HI}), ("/v1/completions", {"prompt": "hi"})]
)
def test_a_stream_tells_how_far_the_prompt_is(app: Application, path: str, body: dict[str, Any]) -> None:
    """`return_progress` adds an event for each chunk of the prompt, with `prompt_progress` at the top."""

    def events(**fields: Any) -> list[dict[str, Any]]:
        answered = ask(app, "POST", path, body=json.dumps({**body, **fields}).encode())
        return [json.loads(line[6:]) for line in answered.body.decode().split("\n\n")[:-2]]

    told = [event.get("prompt_progress") for event in events(stream=True, return_progress=True)]
    assert told[:2] == [
        {"total": 30, "cache": 10, "processed": 20, "time_ms": 250.0},
        {"total": 30, "cache": 10, "processed": 30, "time_ms": 500.0},
    ]
    assert not any(told[2:])
    assert not any("prompt_progress" in event for event in events(stream=True))
    whole = ask(app, "POST", path, body=json.dumps({**body, "return_progress": True}).encode())
    assert whole.status == 200 and b"prompt_progress" not in whole.body


@pytest.mark.requirement("Y-014")
def test_progress_passes_the_strict_sdk(app: Application) -> None:
    """Its stream helper joins the events to the same message, role and all, that it gets without progress."""
    with (
        served(app) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="x", _strict_response_validation=True, max_retries=0) as sdk,
    ):
        stream = sdk.chat.completions.create(model="m", messages=HI, stream=True, extra_body={"return_progress": True})
        chunks = list(stream)
        with sdk.chat.completions.stream(model="m", messages=HI, extra_body={"return_progress": True}) as helper:
            joined = helper.get_final_completion().choices[0].message
        whole = sdk.chat.completions.create(model="m", messages=HI).choices[0].message
    assert (joined.role, joined.content) == (whole.role, whole.content) == ("assistant", "ok")
    assert chunks[0].to_dict()["prompt_progress"] == {"total": 30, "cache": 10, "processed": 20, "time_ms": 250.0}
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "ok"


@pytest.mark.requirement("Y-017", "Y-018", "Y-019", "T-277")
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/chat/completions", {"messages": HI}), ("/v1/completions", {"prompt": "hi"})]
)
def test_replies_carry_timings(app: Application, path: str, body: dict[str, Any]) -> None:
    """Times, rates, cache and draft counters: at the top of a whole answer, on the last event of a stream."""
    expected = {
        "cache_n": 10,
        "prompt_n": 20,
        "prompt_ms": 500.0,
        "prompt_per_token_ms": 25.0,
        "prompt_per_second": 40.0,
        "predicted_n": 5,
        "predicted_ms": 250.0,
        "predicted_per_token_ms": 50.0,
        "predicted_per_second": 20.0,
        "queued_ms": 0.0,
        "draft_n": 4,
        "draft_n_accepted": 3,
    }
    whole = ask(app, "POST", path, body=json.dumps(body).encode())
    assert json.loads(whole.body)["timings"] == expected
    for options in (None, {"include_usage": True}):
        streamed = ask(app, "POST", path, body=json.dumps({**body, "stream": True, "stream_options": options}).encode())
        *others, last = [json.loads(line[6:]) for line in streamed.body.decode().split("\n\n")[:-2]]
        assert last["timings"] == expected
        assert "usage" in last
        assert not any("timings" in event for event in others)


@pytest.mark.requirement("Y-020")
def test_several_replies_have_no_timings(engine: CountingEngine) -> None:
    """Only requests with a single generation carry `timings`."""
    app = create_app(engine=engine, model=SHOWN, dialects=[openai_dialect()])
    engine_of_two = ScriptedEngine(SHOWN, lambda request: reply_events(["ok"], request.choices))
    two = create_app(engine=engine_of_two, model=SHOWN, dialects=[openai_dialect()])
    for stream in (False, True):
        body = json.dumps({"messages": HI, "stream": stream}).encode()
        assert b'"timings"' in ask(app, "POST", "/v1/chat/completions", body=body).body
        body = json.dumps({"messages": HI, "stream": stream, "n": 2}).encode()
        answered = ask(two, "POST", "/v1/chat/completions", body=body)
        assert b'"usage"' in answered.body and b'"timings"' not in answered.body


def metrics(app: Application) -> dict[str, float]:
    text = ask(app, "GET", "/metrics").body.decode()
    return {name: float(value) for name, value in re.findall(r"^tabbyapi:(\S+) (\S+)$", text, re.MULTILINE)}


@pytest.mark.requirement("Y-179", "Y-180", "Y-181", "Y-182", "Y-183", "Y-184", "Y-185", "Y-186", "Y-189", "Y-190")
def test_the_engines_readings_have_llama_cpps_names_too(app: Application, engine: CountingEngine) -> None:
    """Under `tabbyapi:`, beside our own; rates are those since the last scrape; what is not counted is left out."""
    few = {name: value for name, value in metrics(app).items() if "seconds_" not in name.removeprefix("process_start_")}
    assert few.pop("process_start_time_seconds") <= time.time()
    assert few == {"requests_processing": 2.0, "requests_deferred": 1.0, 'model_info{model_name="acme/quokka"}': 1.0}
    engine.totals = {  # type: ignore[misc]
        "requests_total": 3,
        "prompt_tokens_computed_total": 60,
        "prompt_tokens_reused_total": 40,
        "completion_tokens_total": 50,
        "chunk_seconds_total": 2.0,
        "round_seconds_total": 5.0,
        "drafted_total": 8,
        "accepted_total": 6,
        "drafts_total": 4,
        "rounds_total": 20,
        "longest_sequence": 77,
    }
    assert (
        metrics(app).items()
        >= {
            "requests_total": 3.0,
            "prompt_tokens_total": 60.0,
            "prompt_tokens_cached_total": 40.0,
            "prompt_seconds_total": 2.0,
            "tokens_predicted_total": 50.0,
            "tokens_predicted_seconds_total": 5.0,
            "n_tokens_max": 77.0,
            "spec_decode_num_draft_tokens_total": 8.0,
            "spec_decode_num_accepted_tokens_total": 6.0,
            "spec_decode_num_drafts_total": 4.0,
            "prompt_tokens_seconds": 30.0,
            "predicted_tokens_seconds": 10.0,
        }.items()
    )
    engine.totals = {**engine.totals, "completion_tokens_total": 60, "round_seconds_total": 5.5}  # type: ignore[misc]
    later = metrics(app)
    assert (later["predicted_tokens_seconds"], later["prompt_tokens_seconds"]) == (20.0, 0.0)
    assert not {name for name in later if name.startswith(("n_decode", "n_busy"))}
    text = ask(app, "GET", "/metrics").body.decode()
    assert "\ntensorfold:requests_running 2.0\n" in text and "\ntabbyapi:requests_processing 2.0\n" in text


@pytest.mark.requirement("Y-191", "Y-192", "Y-193")
def test_what_the_cache_holds_and_how_often_it_served(app: Application, engine: CountingEngine) -> None:
    """What running requests hold, what later ones can reuse, and hit rates; a tier that is not there is left out."""
    engine.totals = {  # type: ignore[misc]
        "pools": {"main": {"positions": 1024, "used": 256, "kept": 128}},
        "prompt_tokens_begun_total": 200,
        "prompt_tokens_reused_total": 50,
    }
    memory = {name: value for name, value in metrics(app).items() if name.startswith("kv_cache")}
    assert memory == {
        "kv_cache_usage_ratio": 0.25,
        "kv_cache_tokens": 256.0,
        "kv_cache_max_tokens": 1024.0,
        "kv_cache_reusable_tokens": 128.0,
        "kv_cache_hit_rate": 0.25,
    }
    engine.totals = {**engine.totals, "disk": {"tokens": 900, "bytes": 1, "fetched_tokens_total": 20}}  # type: ignore[misc]
    disk = {name: value for name, value in metrics(app).items() if "_disk_" in name}
    assert disk == {"kv_cache_disk_tokens": 900.0, "kv_cache_disk_hit_rate": 0.1}


@pytest.mark.requirement("Y-194")
def test_times_are_histograms_with_vllms_names_and_buckets(app: Application) -> None:
    """`request_queue_time_seconds`, `time_to_first_token_seconds`, `e2e_request_latency_seconds`."""
    for _ in range(2):
        ask(app, "POST", "/v1/chat/completions", body=json.dumps({"messages": HI}).encode())
    seen = metrics(app)
    for name, bucket in (
        ("request_queue_time_seconds", "7680.0"),
        ("time_to_first_token_seconds", "2560.0"),
        ("e2e_request_latency_seconds", "0.3"),
    ):
        assert seen[f"{name}_count"] == 2
        assert f'{name}_bucket{{le="{bucket}"}}' in seen
