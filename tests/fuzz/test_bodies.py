"""Bodies of every dialect: whatever comes, a codec decodes it or refuses it with a 4xx that shows nothing of its inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tensorfold.contracts.dialect import Codec, Exchange, InquiryCodec
from tensorfold.errors import RequestError
from tensorfold.ir import Finished, Queued, Stopped, TextDelta, Timings, Usage, fold
from tensorfold.plugins import Plugins, Wanted
from tensorfold.testing.dialects import CONTEXT
from tensorfold.testing.plugins import default_settings

from .bounds import fuzzed, within_a_second

WORDS = (
    *("user", "assistant", "system", "tool", "developer", "text", "input_text", "output_text", "image_url", "message"),
    *("function", "function_call", "function_call_output", "auto", "none", "required", "any", "json_schema", "enabled"),
    *(
        "tool_use",
        "tool_result",
        "thinking",
        "ephemeral",
        "string",
        "object",
        "array",
        "high",
        "m",
        "stop",
        "../../etc",
    ),
)
"""Values that fields know, so that decoding gets past the first of them."""
NUMBERS = (0, 1, -1, 0.5, 1e308, 2**53, 2**63, 2**64, 10**30, 100000, "7", "0.7", True)

plain: Any = some.one_of(
    some.none(), some.booleans(), some.sampled_from(NUMBERS), some.sampled_from(WORDS), some.text(max_size=6)
)


class Target:
    """One codec, and the words that its bodies are made of."""

    def __init__(self, path: str, codec: Codec | InquiryCodec, bodies: tuple[Any, ...]) -> None:
        self.path = path
        self.codec = codec
        self.fields = sorted({name for body in bodies for name in _names(body)})

    def values(self) -> Any:
        """JSON in which the API's own fields hold anything, to any depth."""
        keys = some.sampled_from(self.fields) | some.text(max_size=3)
        return some.recursive(
            plain,
            lambda inner: some.lists(inner, max_size=3) | some.dictionaries(keys, inner, max_size=5),
            max_leaves=25,
        )


def _names(body: Any, depth: int = 0) -> Iterator[str]:
    """The fields of a wire type, and of those that it holds."""
    if isinstance(body, tuple):
        for each in body:
            yield from _names(each, depth)
        return
    if isinstance(body, type) and issubclass(body, msgspec.Struct):
        for field in msgspec.structs.fields(body):
            yield field.encode_name
            if depth < 4:
                for part in _parts(field.type):
                    yield from _names(part, depth + 1)


def _parts(type: Any) -> Iterator[Any]:
    yield type
    for argument in getattr(type, "__args__", ()):
        yield from _parts(argument)


def targets() -> list[Target]:
    plugins = Plugins(Wanted())
    dialects = [offered.value for offered in plugins.dialects(default_settings(plugins))]
    found = [Target(each.path, each.codec, each.bodies) for dialect in dialects for each in dialect.endpoints]
    return found + [Target(each.path, each.codec, each.bodies) for dialect in dialects for each in dialect.inquiries]


TARGETS = targets()
EVERY = pytest.mark.parametrize("target", TARGETS, ids=[target.path for target in TARGETS])


def decoded(target: Target, body: bytes) -> Any:
    """What the codec makes of a body; None when it refuses it as it should."""
    try:
        return target.codec.decode(body, CONTEXT)
    except RequestError as error:
        refused = error
    assert 400 <= refused.status < 500
    assert refused.message
    told = target.codec.encode_error(refused, "req_1").decode()
    assert not any(word in told for word in ("Traceback", "has no attribute", "NoneType", "msgspec"))
    return None


def answered(exchange: Exchange) -> None:
    """A reply in every form."""
    choices = [request.choices for request in exchange.requests]
    usage, timings = Usage(3, 2), Timings()
    events: list[Any] = [Queued(3)]
    for choice in range(sum(choices)):
        events += [TextDelta(choice, "quokka"), Stopped(choice, "end")]
    events.append(Finished(usage, timings, ("00",) * sum(choices)))
    assert exchange.answer(fold(events))
    encoder = exchange.encoder()
    assert b"".join(map(encoder.feed, events))


def tried(target: Target, body: bytes) -> None:
    with within_a_second():
        exchange = decoded(target, body)
        if exchange is not None and hasattr(exchange, "requests"):
            answered(exchange)


def test_every_dialect_is_fuzzed() -> None:
    """With fields of its own: an endpoint that names no wire type would be fuzzed in vain."""
    assert len(TARGETS) > 12
    assert not [target.path for target in TARGETS if len(target.fields) < 2]


@EVERY
@fuzzed
@given(body=some.binary(max_size=64))
def test_bytes_of_any_kind(target: Target, body: bytes) -> None:
    tried(target, body)


@EVERY
@fuzzed
@given(data=some.data())
def test_fields_with_any_value(target: Target, data: some.DataObject) -> None:
    value = data.draw(some.dictionaries(some.sampled_from(target.fields), target.values(), max_size=8))
    tried(target, json.dumps(value).encode(errors="replace"))


VALID: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "t"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "r"},
    ],
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "t"}]}],
    "prompt": "p",
    "tokens": [1, 2],
    "max_tokens": 4,
    "temperature": 0.5,
    "tools": [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"type": "object"}},
            "name": "f",
            "input_schema": {"type": "object"},
            "parameters": {"type": "object"},
        }
    ],
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    "stop": ["x"],
    "stream": True,
    "options": {"num_predict": 3, "stop": ["x"]},
}
"""Fields of every dialect together: each takes those that it knows."""


@EVERY
@fuzzed
@given(data=some.data())
def test_one_wrong_value_in_a_good_body(target: Target, data: some.DataObject) -> None:
    """At any depth: replaced, left out, or with one more key."""
    body = json.loads(json.dumps(VALID))
    place: Any = body
    for _ in range(data.draw(some.integers(0, 5))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(some.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key]:
            break
        place = place[key]
    if isinstance(place, dict):
        place[data.draw(some.sampled_from([*place, *target.fields]))] = data.draw(target.values())
    elif place:
        place[data.draw(some.integers(0, len(place) - 1))] = data.draw(target.values())
    tried(target, json.dumps(body).encode(errors="replace"))


@EVERY
@pytest.mark.parametrize(
    "body",
    [
        b'{"messages": ' + b"[" * 200_000,
        b'{"messages": ' + b'{"a":' * 200_000,
        b"{" + b",".join(b'"k%d": 1' % number for number in range(200_000)) + b"}",
        b'{"prompt": "' + b"\\u0041" * 500_000 + b'"}',
        b'{"prompt": [' + b"1," * 500_000 + b"1]}",
        b'{"stop": [' + b'"x",' * 200_000 + b'"x"], "prompt": "x", "messages": [], "input": "x"}',
        b'{"temperature": ' + b"9" * 500_000 + b"}",
        b'{"temperature": 1e' + b"9" * 1_000 + b"}",
    ],
    ids=[
        "deep lists",
        "deep objects",
        "many keys",
        "escapes",
        "many ids",
        "many stops",
        "long number",
        "long exponent",
    ],
)
def test_large_bodies(target: Target, body: bytes) -> None:
    tried(target, body)
