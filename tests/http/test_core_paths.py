"""The paths that belong to the core: models, health, metrics; and those that nobody has."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tensorfold.contracts.dialect import Dialect, Endpoint, InquiryEndpoint, Resource
from tensorfold.contracts.engine import EngineStatus, ModelInfo
from tensorfold.errors import PluginConflict
from tensorfold.http import HttpSettings, create_app
from tensorfold.ir import JSON
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_openai.chat import ChatCodec
from tensorfold_dialect_openai.errors import OpenAIErrors

KEY = {"authorization": "Bearer k"}


class Told(ScriptedEngine):
    """A scripted engine whose status is given."""

    def __init__(self, status: EngineStatus) -> None:
        super().__init__(MODEL, lambda request: ())
        self._status = status

    def status(self) -> EngineStatus:
        return self._status


def app_of(engine: ScriptedEngine, *dialects: Dialect, **more: Any) -> Any:
    return create_app(engine=engine, model=MODEL, dialects=dialects or [openai_dialect()], **more)


def healthy(**facts: Any) -> Told:
    return Told(EngineStatus(healthy=True, **facts))


@pytest.mark.requirement("T-032", "T-033")
def test_the_list_of_models_has_the_served_id_and_every_alias() -> None:
    """`GET /v1/models` lists the served ID first, then the aliases, each as an entry of its own."""
    body = json.loads(ask(app_of(healthy()), "GET", "/v1/models").body)
    assert [entry["id"] for entry in body["data"]] == ["acme/quokka", "quokka"]
    assert (body["first_id"], body["last_id"], body["has_more"]) == ("acme/quokka", "quokka", False)
    assert [entry["name"] for entry in body["models"]] == ["acme/quokka", "quokka"]


def test_an_entry_has_the_window_in_each_field_that_clients_read() -> None:
    """`max_model_len` and `meta.n_ctx` are the effective window, `meta.n_ctx_train` the checkpoint's own."""
    entry = json.loads(ask(app_of(healthy()), "GET", "/v1/models").body)["data"][0]
    assert entry["max_model_len"] == entry["meta"]["n_ctx"] == MODEL.window
    assert entry["meta"]["n_ctx_train"] == MODEL.trained_window
    assert (entry["object"], entry["type"], entry["lifecycle"]) == ("model", "model", "active")


@pytest.mark.parametrize("name", ["acme/quokka", "quokka"])
def test_one_model_is_found_by_id_and_alias_slashes_included(name: str) -> None:
    answered = ask(app_of(healthy()), "GET", f"/v1/models/{name}")
    assert answered.status == 200
    assert json.loads(answered.body)["id"] == name


@pytest.mark.parametrize("name", ["other", "../x", "acme/quokka/x", "acme"])
def test_a_model_that_is_not_served_is_a_404_that_names_it(name: str) -> None:
    answered = ask(app_of(healthy()), "GET", f"/v1/models/{name}")
    assert answered.status == 404
    error = json.loads(answered.body)["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert name in error["message"]


def describing(name: str, path: str, keys: Mapping[str, JSON]) -> Dialect:
    def describe(model: ModelInfo) -> Mapping[str, JSON]:
        return keys

    return Dialect(name=name, errors=OpenAIErrors(), endpoints=(Endpoint(path, ChatCodec()),), describe_model=describe)


def test_dialects_add_keys_to_each_entry() -> None:
    app = app_of(healthy(), describing("one", "/one", {"a": 1}), describing("two", "/two", {"b": [2]}))
    for entry in json.loads(ask(app, "GET", "/v1/models").body)["data"]:
        assert (entry["a"], entry["b"]) == (1, [2])


@pytest.mark.parametrize(
    ("keys", "named"), [({"a": 1}, "dialect one"), ({"object": "x"}, "the core")], ids=["another dialect", "the core"]
)
def test_two_descriptions_under_one_key_stop_the_start(keys: Mapping[str, JSON], named: str) -> None:
    with pytest.raises(PluginConflict, match=f"dialect two and {named}"):
        app_of(healthy(), describing("one", "/one", {"a": 1}), describing("two", "/two", keys))


def test_two_dialects_with_one_path_stop_the_start() -> None:
    with pytest.raises(PluginConflict, match="dialect one and dialect two both claim the path /one"):
        app_of(healthy(), describing("one", "/one", {}), describing("two", "/one", {}))


def test_paths_that_differ_only_in_a_variable_are_one_path() -> None:
    mine = Dialect(
        name="mine", errors=OpenAIErrors(), resources=lambda services: [Resource("/v1/models/{name}", object())]
    )
    with pytest.raises(PluginConflict, match="the core and dialect mine"):
        app_of(healthy(), mine)


def test_a_path_that_cannot_stand_beside_another_stops_the_start() -> None:
    mine = Dialect(
        name="mine", errors=OpenAIErrors(), resources=lambda services: [Resource("/v1/models/{name}/x", Faulty())]
    )
    with pytest.raises(PluginConflict, match="dialect mine claims the path"):
        app_of(healthy(), mine)


def test_two_dialects_with_one_name_stop_the_start() -> None:
    with pytest.raises(PluginConflict, match="two dialects are called one"):
        app_of(healthy(), describing("one", "/one", {}), describing("one", "/two", {}))


@pytest.mark.requirement("T-034", "T-019")
def test_health_without_keys_shows_its_details() -> None:
    """With no keys configured `/health` gives the model, what runs and waits, and the engine's own counters."""
    app = app_of(healthy(running=2, waiting=1, details={"rounds_total": 7}))
    body = json.loads(ask(app, "GET", "/health").body)
    assert body["status"] == "ok"
    assert body["model"] == MODEL.id
    assert (body["requests_running"], body["requests_waiting"], body["rounds_total"]) == (2, 1, 7)


@pytest.mark.requirement("T-017", "T-018")
def test_health_with_keys_is_open_and_says_its_status_alone() -> None:
    """With keys configured, `/health` without a key is exactly `{"status":"ok"}`; a valid key sees the details."""
    app = app_of(healthy(running=2), auth=[KeySource(flags=["k"])])
    for headers in ({}, {"authorization": "Bearer wrong"}):
        answered = ask(app, "GET", "/health", headers=headers)
        assert (answered.status, answered.body) == (200, b'{"status":"ok"}')
    assert json.loads(ask(app, "GET", "/health", headers=KEY).body)["requests_running"] == 2


@pytest.mark.requirement("T-018")
def test_health_tells_the_truth_about_a_stuck_engine() -> None:
    """An unhealthy engine is a 503 with another word; why, only for those who may see details."""
    engine = Told(EngineStatus(healthy=False, problem="no round has ended for 60 s"))
    answered = ask(app_of(engine, auth=[KeySource(flags=["k"])]), "GET", "/health")
    assert (answered.status, answered.body) == (503, b'{"status":"unhealthy"}')
    answered = ask(app_of(engine), "GET", "/health")
    assert answered.status == 503
    assert json.loads(answered.body)["problem"] == "no round has ended for 60 s"


def test_head_is_get_without_a_body() -> None:
    for path in ("/health", "/v1/models", "/v1/models/quokka", "/metrics"):
        answered = ask(app_of(healthy()), "HEAD", path)
        assert (answered.status, answered.body) == (200, b"")


@pytest.mark.requirement("T-296", "T-036", "Y-177")
def test_both_metrics_paths_answer_the_same_prometheus_text() -> None:
    """`GET /metrics` and `GET /v1/metrics` are Prometheus text with the same families."""
    app = app_of(healthy(running=3, waiting=2))
    texts = [ask(app, "GET", path) for path in ("/metrics", "/v1/metrics")]
    assert all(answered.headers["content-type"].startswith("text/plain; version=0.0.4") for answered in texts)
    families = [
        {line for line in answered.body.decode().splitlines() if line.startswith("# TYPE")} for answered in texts
    ]
    assert families[0] == families[1]
    assert b"tensorfold:requests_running 3.0" in texts[1].body


def test_an_unknown_path_is_a_404_in_the_default_dialects_envelope() -> None:
    answered = ask(app_of(healthy()), "GET", "/v1/nothing")
    assert answered.status == 404
    assert json.loads(answered.body)["error"]["message"] == "there is nothing at /v1/nothing"


class Elsewhere(OpenAIErrors):
    """Another envelope."""

    def encode_error(self, error: Any, request_id: str) -> bytes:
        return json.dumps({"elsewhere": error.message, "id": request_id}).encode()


@pytest.mark.requirement("T-014")
@pytest.mark.parametrize(
    ("path", "elsewhere"),
    [("/other/x", True), ("/other", True), ("/other/x/y", True), ("/v1/x", False), ("/", False), ("/o", False)],
)
def test_errors_have_the_envelope_of_the_dialect_with_the_nearest_path(path: str, elsewhere: bool) -> None:
    """A 404 or 401 has the error format of the route's own dialect, or of the nearest one's."""
    other = Dialect(
        name="other",
        errors=Elsewhere(),
        endpoints=(Endpoint("/other/x", ChatCodec()), Endpoint("/v1/other", ChatCodec())),
    )
    for more, status in (({}, None), ({"auth": [KeySource(flags=["k"])]}, 401)):
        answered = ask(app_of(healthy(), openai_dialect(), other, **more), "GET", path)
        assert answered.status == status or status is None
        assert ("elsewhere" in json.loads(answered.body)) is elsewhere


class Own(ChatCodec):
    """A codec whose errors are not its dialect's."""

    def encode_error(self, error: Any, request_id: str) -> bytes:
        return json.dumps({"own": error.message, "id": request_id}).encode()


@pytest.mark.parametrize(("path", "kind"), [("/other/x", "endpoints"), ("/other/ask", "inquiries")])
def test_what_a_codec_refuses_has_the_codecs_envelope(path: str, kind: str) -> None:
    """And what comes before it has its dialect's."""
    where: Any = {"endpoints": Endpoint, "inquiries": InquiryEndpoint}[kind]
    given: dict[str, Any] = {kind: (where(path, Own()),)}
    app = app_of(healthy(), Dialect(name="other", errors=Elsewhere(), **given))
    assert json.loads(ask(app, "POST", path, body=b"{").body).keys() == {"own", "id"}
    assert json.loads(ask(app, "GET", path).body).keys() == {"elsewhere", "id"}


def test_a_wrong_method_is_a_405_that_says_which_are_right() -> None:
    answered = ask(app_of(healthy()), "GET", "/v1/chat/completions")
    assert answered.status == 405
    assert "POST" in answered.headers["allow"]
    assert json.loads(answered.body)["error"]["code"] == "method_not_allowed"


def test_a_server_without_dialects_still_answers_in_json() -> None:
    app = create_app(engine=healthy(), model=MODEL, dialects=[])
    assert json.loads(ask(app, "GET", "/x").body)["error"]["type"] == "not_found_error"


class Faulty:
    """A resource with a bug."""

    async def on_get(self, req: object, resp: object) -> None:
        raise KeyError("secret inside")


def test_a_fault_is_a_500_that_shows_nothing_of_the_inside() -> None:
    faulty = Dialect(name="faulty", errors=OpenAIErrors(), resources=lambda services: [Resource("/v1/bug", Faulty())])
    answered = ask(app_of(healthy(), faulty), "GET", "/v1/bug")
    assert answered.status == 500
    assert b"secret" not in answered.body
    assert b"KeyError" not in answered.body


@pytest.mark.parametrize(
    ("offered", "echoed"),
    [
        ("abc-1", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("a b", False),
        ("a\r\nx: y", False),
        ("", False),
        ("é", False),
    ],
)
def test_a_sane_request_id_is_echoed_under_every_name(offered: str, echoed: bool) -> None:
    answered = ask(app_of(healthy()), "GET", "/v1/nothing", headers={"x-request-id": offered})
    names = {answered.headers[name] for name in ("x-request-id", "request-id", "x-typesafe-request-id")}
    assert len(names) == 1
    assert (names == {offered}) is echoed


def test_two_requests_with_one_offered_id_have_ids_of_their_own_inside(chat: dict[str, Any]) -> None:
    engine = ScriptedEngine(MODEL, lambda request: ())
    for _ in range(2):
        ask(
            app_of(engine),
            "POST",
            "/v1/chat/completions",
            body=json.dumps(chat).encode(),
            headers={"x-request-id": "same"},
        )
    assert len({request.id for request in engine.requests}) == 2


def test_so_many_requests_at_once_and_no_more_but_health_always_answers(rig: Callable[..., Any]) -> None:
    full = rig(settings=HttpSettings(max_requests=0)).app
    answered = ask(full, "GET", "/v1/models")
    assert answered.status == 503
    assert answered.headers["retry-after"] == "1"
    assert answered.headers["x-should-retry"] == "true"
    assert ask(full, "GET", "/health").status == 200
