"""What dialects share over msgspec, where one dialect's bodies do not show it."""

from __future__ import annotations

import contextlib
import json
from itertools import accumulate
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tensorfold.errors import DecodeError
from tensorfold.wire import MAX_DEPTH, BodyDecoder, Int64, check_body, lenient_float, lenient_int, path_at

json_values: Any = some.recursive(
    some.none() | some.booleans() | some.integers(-(2**53), 2**53) | some.text(max_size=6),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, some.booleans())
def test_every_good_body_passes(value: object, ascii: bool) -> None:
    body = json.dumps({"x": value}, ensure_ascii=ascii).encode(errors="surrogatepass")
    assert check_body(body) == body


@given(
    some.lists(some.sampled_from(["[", "]", "{", "}", '"', "\\", "\\\\", '\\"', "a", ","]), max_size=40),
    some.integers(0, 300),
)
def test_depth_counts_brackets_outside_texts_and_no_others(parts: list[str], extra: int) -> None:
    """Held against a reader of one character at a time."""
    text = json.dumps("".join(parts))
    body = "[" * extra + text + "," + text + "]" * extra + "," + "[]," * MAX_DEPTH
    inside, escaped, steps = False, False, [0]
    for character in body:
        if escaped:
            escaped = False
        elif inside:
            inside, escaped = character != '"', character == "\\"
        elif character == '"':
            inside = True
        elif character in "[]":
            steps.append(1 if character == "[" else -1)
    depth = max(accumulate(steps))
    if depth > MAX_DEPTH:
        with pytest.raises(DecodeError, match=f"nested {depth} levels"):
            check_body(body.encode())
    else:
        assert check_body(body.encode())


def marked(value: object, path: str = "") -> list[tuple[object, str]]:
    """Copies of a JSON value in each of which one leaf is a mark, with the leaf's path."""
    match value:
        case list():
            return [
                ([*value[:index], copy, *value[index + 1 :]], place)
                for index, item in enumerate(value)
                for copy, place in marked(item, f"{path}[{index}]")
            ]
        case dict():
            return [
                ({**value, key: copy}, place)
                for key, item in value.items()
                for copy, place in marked(item, f"{path}.{key}" if path else key)
            ]
        case _:
            return [("MARK", path)]


@given(
    some.dictionaries(
        some.text(some.characters(codec="utf-8"), min_size=1, max_size=4), json_values, min_size=1, max_size=4
    )
)
def test_the_path_of_a_byte_is_that_of_its_value(value: dict[str, object]) -> None:
    for copy, place in marked(value):
        for text in (json.dumps(copy), json.dumps(copy, ensure_ascii=False, indent=1)):
            body = text.encode(errors="replace")
            at = body.rindex(b'"MARK"') if body.count(b'"MARK"') == 1 else -1
            assert at < 0 or path_at(body, at) == place


def test_far_errors_have_no_path() -> None:
    assert path_at(b'{"a": "' + b"x" * (2 << 20), 2 << 20) is None


class Inner(msgspec.Struct):
    """A part."""

    value: Int64
    kind: str = "a"


class Outer(msgspec.Struct):
    """A body."""

    items: list[Inner]
    named: dict[str, Inner] | None = None
    pick: bool | None = None


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        ("{}", "items is missing", "items"),
        ('{"items": {}}', "items must be a list, and is an object", "items"),
        ('{"items": [{}]}', "items[0].value is missing", "items[0].value"),
        ('{"items": [{"value": "1"}]}', "items[0].value must be an integer, and is a string", "items[0].value"),
        ('{"items": [{"value": 1e400}]}', "items[0].value must be a finite number", "items[0].value"),
        (
            '{"items": [{"value": 1}, {"value": null}]}',
            "items[1].value must be an integer, and is null",
            "items[1].value",
        ),
        ('{"items": [], "pick": 1}', "pick must be true, false or null, and is an integer", "pick"),
        (
            '{"items": [], "named": {"x": {"value": []}}}',
            "named.value must be an integer, and is a list",
            "named.value",
        ),
        ("[1]", "the body must be an object, and is a list", None),
    ],
)
def test_errors_are_told_in_plain_words(body: str, message: str, param: str | None) -> None:
    with pytest.raises(DecodeError) as caught:
        BodyDecoder(Outer).decode(body.encode())
    assert (caught.value.message, caught.value.param) == (message, param)


@pytest.mark.parametrize("value", [10**19, -(10**19), 10**400])
def test_an_integer_of_more_than_64_bits_is_refused(value: int) -> None:
    with pytest.raises(DecodeError) as caught:
        BodyDecoder(Outer).decode(b'{"items": [{"value": %d}]}' % value)
    assert caught.value.param == "items[0].value"


@given(some.floats(allow_nan=False, allow_infinity=False))
def test_a_number_and_its_text_are_the_same_float(value: float) -> None:
    assert lenient_float(value, "x") == value
    assert lenient_float(repr(value), "x") == value


@given(some.integers(-(2**63), 2**64 - 1))
def test_an_integer_and_its_text_are_the_same(value: int) -> None:
    assert lenient_int(value, "x") == lenient_int(str(value), "x") == value


@given(some.text(max_size=12))
def test_no_text_makes_a_number_raise_anything_else(text: str) -> None:
    for read in (lenient_int, lenient_float):
        with contextlib.suppress(DecodeError):
            assert read(text, "x") is not None
