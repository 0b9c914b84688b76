"""What the OpenAI dialect reads of a body, and what it refuses: each refusal names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.contracts.dialect import Exchange
from tensorfold.errors import RequestError, Unsupported
from tensorfold.ir import Limits, Sampling
from tensorfold.testing.dialects import CONTEXT, refusal
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_openai.unserved import CHAT_FIELDS, COMPLETION_FIELDS

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CODECS = {endpoint.path: endpoint.codec for endpoint in openai_dialect().endpoints}
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
ONCE: dict[str, Any] = {"prompt": "Once"}
BOTH = pytest.mark.parametrize(("path", "base"), [(CHAT, HI), (COMPLETIONS, ONCE)], ids=["chat", "completions"])


def decode(path: str, body: dict[str, Any] | bytes) -> Exchange:
    return CODECS[path].decode(body if isinstance(body, bytes) else json.dumps(body).encode(), CONTEXT)


def sampling(path: str, body: dict[str, Any]) -> Sampling:
    return decode(path, body).requests[0].sampling


def limits(path: str, body: dict[str, Any]) -> Limits:
    return decode(path, body).requests[0].limits


def refused(path: str, body: dict[str, Any] | bytes) -> RequestError:
    return refusal(CODECS[path], body if isinstance(body, bytes) else json.dumps(body).encode())


# ---- sampling and limits ----


@pytest.mark.requirement("T-092", "T-093", "T-094", "Y-003", "Y-052")
@BOTH
def test_sampling_fields_reach_the_engine(path: str, base: dict[str, Any]) -> None:
    """`temperature`, `top_p`, `top_k`, `min_p`, `seed` and the penalties override the server's sampling."""
    body = {**base, "temperature": 0, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "seed": 11, "repetition_penalty": 1.2}
    body |= {"presence_penalty": -2, "frequency_penalty": 2, "logit_bias": {"3": 1}}
    assert sampling(path, body) == Sampling(
        temperature=0.0,
        top_p=0.5,
        top_k=7,
        min_p=0.1,
        seed=11,
        presence_penalty=-2.0,
        frequency_penalty=2.0,
        repetition_penalty=1.2,
        logit_bias=((3, 1.0),),
    )


@pytest.mark.requirement("T-124")
@BOTH
@pytest.mark.parametrize(
    ("field", "given", "read"),
    [
        ("temperature", "0.7", 0.7),
        ("temperature", 1, 1.0),
        ("top_p", "1e-1", 0.1),
        ("top_k", 20.0, 20),
        ("top_k", "20", 20),
        ("top_k", "20.0", 20),
        ("seed", "42", 42),
        ("seed", 42.0, 42),
        ("seed", -1, -1),
        ("seed", 2**64 - 1, 2**64 - 1),
    ],
)
def test_a_numeric_string_and_an_integral_float_count_as_the_number(
    path: str, base: dict[str, Any], field: str, given: object, read: float
) -> None:
    """By the spec's wording `"0.7"` and `20.0` are not malformed."""
    value = getattr(sampling(path, {**base, field: given}), field)
    assert value == read
    assert type(value) is type(read)


@pytest.mark.requirement("T-122", "T-123", "T-125")
@BOTH
@pytest.mark.parametrize("greedy", [{}, {"temperature": 0}])
@pytest.mark.parametrize("field", ["temperature", "top_p", "top_k", "seed", "min_p", "presence_penalty"])
@pytest.mark.parametrize(
    "value",
    ["true", "false", '"nan"', '"inf"', '"x"', '""', "[]", "{}", "1e999", "-1e999", "NaN", "Infinity", "-Infinity"],
)
def test_a_malformed_number_is_refused_also_when_greedy(
    path: str, base: dict[str, Any], greedy: dict[str, Any], field: str, value: str
) -> None:
    """Booleans, non-finite numbers and strings that are no number are a 400, whether or not the request samples."""
    body = json.dumps({**base, **greedy} | {field: "VALUE"}).replace('"VALUE"', value)
    error = refused(path, body.encode())
    assert error.param == field
    assert field in error.message


@pytest.mark.requirement("T-123")
@BOTH
@pytest.mark.parametrize("field", ["top_k", "seed"])
@pytest.mark.parametrize("value", [1.5, "1.5", 1e-9, 2**64, -(2**63) - 1, "1e300"])
def test_a_non_integral_or_enormous_top_k_or_seed_is_refused(
    path: str, base: dict[str, Any], field: str, value: object
) -> None:
    """Non-integral `top_k` or `seed` gives 400."""
    assert refused(path, {**base, field: value}).param == field


@pytest.mark.requirement("T-133", "T-131")
@BOTH
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("top_p", -0.1),
        ("top_p", 1.1),
        ("temperature", -1),
        ("temperature", 1e9),
        ("repetition_penalty", 0),
        ("presence_penalty", 1e9),
        ("logit_bias", {"1": 101}),
        ("n", 0),
        ("n", -1),
        ("n", 129),
        ("n", 10**30),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", 10**30),
        ("max_completion_tokens", 0),
        ("min_tokens", -1),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", ["x"] * 65),
        ("stop", "x" * 5000),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", list(range(65))),
    ],
)
def test_an_impossible_value_is_refused(path: str, base: dict[str, Any], field: str, value: object) -> None:
    """`min_p` outside 0 to 1, negative and enormous limits, and other impossible values give 400 by name."""
    error = refused(path, {**base, field: value})
    assert error.param is not None
    assert error.param.startswith(field) or (field, error.param) == ("max_completion_tokens", "max_tokens")


@pytest.mark.requirement("T-121", "T-120", "T-125")
@BOTH
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", 5),
        ("stop", [1]),
        ("stop", {}),
        ("stop", [["a"]]),
        ("ignore_eos", 1),
        ("ignore_eos", "true"),
        ("stream", "yes"),
        ("stream", 1),
        ("draft", "false"),
        ("max_tokens", "5"),
        ("max_tokens", 5.0),
        ("max_tokens", True),
        ("min_tokens", 1.5),
        ("n", True),
        ("n", 1.5),
        ("n", "2"),
        ("logit_bias", []),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"1": "x"}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"1": 1, "01": 2}),
        ("logit_bias", {str(token): 1 for token in range(1025)}),
        ("stop_token_ids", 3),
        ("stop_token_ids", [1.5]),
        ("stop_token_ids", [True]),
        ("stream_options", True),
        ("stream_options", {"include_usage": "yes"}),
        ("priority", 3),
        ("priority", "urgent"),
        ("model", 3),
        ("user", {}),
        ("metadata", "x"),
        ("store", "x"),
    ],
)
def test_a_wrong_type_is_refused(path: str, base: dict[str, Any], field: str, value: object) -> None:
    """JSON of a wrong type is a 400 that names the field."""
    error = refused(path, {**base, field: value})
    assert error.param is not None
    assert error.param.startswith(field)
    assert field in error.message


@pytest.mark.requirement("T-127", "T-128")
@BOTH
def test_top_k_of_zero_or_less_is_off_and_null_keeps_the_default(path: str, base: dict[str, Any]) -> None:
    """`top_k` of zero or less turns top-k off; a null sampling field keeps the server's default."""
    assert [sampling(path, {**base, "top_k": value}).top_k for value in (0, -1, -40, "-1", None)] == [0, 0, 0, 0, None]
    assert sampling(path, base | dict.fromkeys(["temperature", "top_p", "min_p", "seed", "logit_bias"])) == Sampling()


@pytest.mark.requirement("T-090")
@BOTH
def test_both_names_of_the_reply_limit_are_read(path: str, base: dict[str, Any]) -> None:
    """`max_tokens` and `max_completion_tokens` set the explicit limit; two that disagree are refused."""
    assert limits(path, {**base, "max_tokens": 5}).max_tokens == 5
    assert limits(path, {**base, "max_completion_tokens": 6}).max_tokens == 6
    assert limits(path, {**base, "max_tokens": 7, "max_completion_tokens": 7}).max_tokens == 7
    assert limits(path, base).max_tokens is None
    error = refused(path, {**base, "max_tokens": 7, "max_completion_tokens": 8})
    assert error.param == "max_completion_tokens"
    for name in ("max_tokens", "max_completion_tokens"):
        assert refused(path, {**base, name: 0}).param == name


@pytest.mark.requirement("T-091")
@BOTH
def test_an_explicit_limit_past_the_window_is_for_the_engine_to_refuse(path: str, base: dict[str, Any]) -> None:
    """Chat and completions never have a limit cut."""
    assert limits(path, {**base, "max_tokens": 10**6}).overflow == "refuse"


@pytest.mark.requirement("T-106", "T-107", "T-119")
@BOTH
def test_stop_and_ignore_eos_are_read_together(path: str, base: dict[str, Any]) -> None:
    """`stop` is a string or a list, and stays active with `ignore_eos: true`."""
    assert limits(path, {**base, "stop": "END", "ignore_eos": True}) == Limits(stop=("END",), ignore_eos=True)
    assert limits(path, {**base, "stop": ["a", "b"]}).stop == ("a", "b")
    nothings: list[object] = [None, []]
    for nothing in nothings:
        assert limits(path, {**base, "stop": nothing, "ignore_eos": None}) == Limits()


@pytest.mark.requirement("T-111")
@BOTH
def test_several_replies_are_asked_for_with_n(path: str, base: dict[str, Any]) -> None:
    """`n` up to 128 is served; 1 and null are one reply."""
    assert [decode(path, {**base, "n": n}).requests[0].choices for n in (1, None, 2, 128)] == [1, 1, 2, 128]


@BOTH
def test_draft_and_priority_are_read(path: str, base: dict[str, Any]) -> None:
    request = decode(path, {**base, "draft": False, "priority": "background"}).requests[0]
    assert (request.draft, request.priority) == (False, "background")
    for default in ({}, {"draft": True, "priority": "foreground"}, {"draft": None, "priority": None}):
        request = decode(path, {**base, **default}).requests[0]
        assert (request.draft, request.priority) == (True, "foreground")


# ---- fields that are not served ----


@pytest.mark.requirement("Y-003")
@pytest.mark.parametrize(
    ("path", "field"), [(CHAT, name) for name in CHAT_FIELDS] + [(COMPLETIONS, name) for name in COMPLETION_FIELDS]
)
def test_an_unserved_field_passes_with_its_default_and_is_refused_with_another_value(path: str, field: str) -> None:
    """A field that the server does not implement is a 400 by name, never ignored; null and its default pass."""
    base = HI if path == CHAT else ONCE
    passes = (CHAT_FIELDS if path == CHAT else COMPLETION_FIELDS)[field]
    for value in (None, *passes):
        assert decode(path, {**base, field: value}).requests == decode(path, base).requests
    for other in ({"something": "else"}, "another value", [3], 0.123):
        error = refused(path, {**base, field: other})
        assert isinstance(error, Unsupported)
        assert error.param == field


@pytest.mark.requirement("T-067")
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("modalities", ["text", "audio"]),
        ("modalities", ["image"]),
        ("audio", {"voice": "alloy", "format": "wav"}),
        ("top_logprobs", 5),
        ("tool_choice", "required"),
        ("chat_template_kwargs", []),
    ],
)
def test_what_comes_later_is_refused_by_name_and_not_ignored(field: str, value: object) -> None:
    """A request for non-text output, tools, structured output or reasoning control gives 400 until it is served."""
    assert refused(CHAT, {**HI, field: value}).param == field


@pytest.mark.requirement("T-065", "T-067")
@pytest.mark.parametrize(("field", "value"), [("modalities", ["audio"]), ("audio", {"voice": "alloy"})])
def test_output_that_is_no_text_is_refused_on_every_endpoint_that_replies(field: str, value: object) -> None:
    """Completions and Responses refuse `modalities` and `audio` too, and never ignore them."""
    assert refused(COMPLETIONS, {**ONCE, field: value}).param == field
    assert refused("/v1/responses", {"input": "hi", field: value}).param == field


@BOTH
def test_booleans_are_not_numbers_in_defaults(path: str, base: dict[str, Any]) -> None:
    for field, value in (("best_of", True), ("use_beam_search", 0), ("skip_special_tokens", 1)):
        assert refused(path, {**base, field: value}).param == field
    decode(path, {**base, "best_of": 1.0})


@BOTH
def test_unknown_fields_are_ignored(path: str, base: dict[str, Any]) -> None:
    assert decode(path, {**base, "no_such_field": {"deep": [1]}}).requests == decode(path, base).requests


@BOTH
def test_a_huge_value_of_an_unserved_field_is_refused_without_being_built(path: str, base: dict[str, Any]) -> None:
    assert refused(path, {**base, "mm_processor_kwargs": {"x": ["y"] * 10_000}}).param == "mm_processor_kwargs"
