"""Chat templates of untrusted checkpoints: compiled or refused, rendered or refused, within a second, without a way out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.errors import CheckpointUnsupported, InvalidRequest

from .bounds import fuzzed, within_a_second

USER: Any = [{"role": "user", "content": "hello 0"}, {"role": "assistant", "content": "x\ny", "tool_calls": []}]

SHARED = "{% set ns=namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x=[ns.x, ns.x] %}{% endfor %}"
OTHER = SHARED.replace("ns", "other")
"""A value of 2 ** 60 parts, in a few hundred bytes."""


def rendered(source: str) -> str | None:
    """What a template renders; None when it is refused. Trials at the load count too, and have a second of their own."""
    try:
        with within_a_second(3.0):
            return ChatTemplate(source, {"<|x|>": 1}, {"bos_token": "<|x|>"}).render(Conversation(USER)).text
    except (CheckpointUnsupported, InvalidRequest):
        return None


@pytest.mark.parametrize(
    "source",
    [
        SHARED + "{{ ns.x }}",
        SHARED + "{{ ns.x | tojson }}",
        SHARED + "{{ ns.x | tojson(indent=1) }}",
        SHARED + "{{ ns.x | string | length }}",
        SHARED + "{{ ns.x ~ '' }}",
        SHARED + "{{ '%s' % (ns.x,) }}",
        SHARED + "{{ '%s' | format(ns.x) }}",
        SHARED + "{{ '{}'.format(ns.x) }}",
        SHARED + "{{ '{a}'.format_map({'a': ns.x}) }}",
        SHARED + "{{ [ns.x, 1] | join('') }}",
        SHARED + "{{ ''.join([ns.x]) }}",
        SHARED + OTHER + "{{ ns.x == other.x }}",
        SHARED + OTHER + "{{ ns.x in [other.x] }}",
        SHARED + OTHER + "{{ ns.x is eq(other.x) }}",
        SHARED + OTHER + "{{ [ns.x] | select('equalto', other.x) | list }}",
        SHARED + OTHER + "{{ [ns.x, other.x] | sort }}",
        SHARED + OTHER + "{{ [ns.x, other.x] | max }}",
        "{% macro m(x, n) %}{% if n %}{{ m([x, x], n - 1) }}{% else %}{{ x }}{% endif %}{% endmacro %}{{ m(1, 60) }}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
        "{% set l = range(99999) | list %}{% for a in range(9999) %}{% set x = l | sort %}{% endfor %}",
        "{% set x = 'a' * 60000000 %}{% for a in range(999) %}{% set y = x | upper %}{% endfor %}",
        "{% set x = 'ab' * 400000 %}{% for a in range(999) %}{% set y = x.split('b') %}{% endfor %}",
        "{% set g = range(99999) | map('string') | list %}{% for a in range(999) %}{% set y = g | join %}{% endfor %}",
        "{{ [1] * 60000000 }}",
        "{{ ('a' * 60000000) | list | length }}",
        "{{ ('a ' * 30000000).split() | length }}",
        "{{ 'x'.encode().ljust(10 ** 10) }}",
        "{{ (1).to_bytes(10 ** 10, 'big') }}",
        "{{ 'x'.translate({120: 'y' * 60000000}) }}",
        "{{ [1, 2] | random }}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% include 'x' %}",
        "{% extends 'x' %}",
        "{% import 'x' as y %}",
    ],
)
def test_what_would_never_end_is_refused(source: str) -> None:
    assert rendered(source) is None


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "[" * 300 + "]" * 300 + " }}",
        "{{ " + "-" * 5000 + "1 }}",
        "{{ 'x'" + " | upper" * 5000 + " }}",
        "{% if 1 %}" * 200 + "{% endif %}" * 200,
        "{% if 1 %}" * 3000,
        "{{ 1" + "0" * 5000 + " }}",
        "{{ '" + "\\" * 4999,
        "{#" * 5000,
        "{% raw %}" * 5000,
        "x" * ((1 << 20) + 1),
        "\x00{{ '\x00' }}\ud800",
    ],
    ids=range(13),
)
def test_a_source_of_any_shape_is_compiled_or_refused(source: str) -> None:
    rendered(source)


@pytest.mark.parametrize(
    "expression",
    [
        "''.__class__",
        "''.__class__.__mro__[1].__subclasses__()",
        "[].__class__.__base__",
        "cycler.__init__.__globals__",
        "namespace.__init__.__globals__",
        "raise_exception.__globals__",
        "strftime_now.__code__",
        "self._TemplateReference__context",
        "messages.__class__",
        "messages.append(1)",
        "messages[0].update({'role': 'system'})",
        "messages[0].pop('role')",
        "('' | attr('__class__')) | string",
        "(messages | map(attribute='__class__') | list)[0].__name__",
        "'{0.__class__}'.format(1)",
        "'{a.__class__}'.format_map({'a': 1})",
        "_tensorfold_budget.step",
        "_tensorfold_budget",
        "_tensorfold_tick()",
        "_tensorfold_budget._steps",
        "(1).real",
        "'x'.encode()",
    ],
)
def test_there_is_no_way_out_of_the_sandbox(expression: str) -> None:
    """No attribute with an underscore, no change of what was sent, no number's or bytes' own methods."""
    text = rendered(f"{{% if ({expression}) is defined %}}{{{{ {expression} }}}}{{% endif %}}")
    assert text is None or not any(word in text for word in ("class", "object", "function", "0x", "globals", "system"))


names = some.sampled_from(
    ["messages", "tools", "x", "ns", "loop", "bos_token", "range", "dict", "m", "caller", "cycler", "joiner"]
)
attributes = some.sampled_from(
    ["role", "content", "__class__", "items", "append", "x", "split", "format", "join", "upper", "index", "last"]
)
filters = some.sampled_from(
    [
        "tojson",
        "join",
        "length",
        "list",
        "sort",
        "string",
        "upper",
        "trim",
        "first",
        "default('x')",
        "map('upper')",
        "indent(9)",
        "batch(3)",
        "replace('a', 'bb')",
        "unique",
        "groupby('role')",
        "selectattr('role')",
        "items",
        "dictsort",
        "sum",
        "center(99)",
    ]
)
atoms = names | some.sampled_from(
    ["1", "0", "99999", "'a'", "''", "[]", "{}", "none", "true", "[1, [2]]", "{'a': 1}", "'<|x|>'"]
)


def grown(inner: Any) -> Any:
    pair = some.tuples(inner, inner)
    return some.one_of(
        some.tuples(inner, attributes).map(lambda each: f"{each[0]}.{each[1]}"),
        some.tuples(inner, filters).map(lambda each: f"({each[0]} | {each[1]})"),
        some.tuples(pair, some.sampled_from(["+", "*", "-", "~", "%", "**", "==", "in", "<", "and", "//"])).map(
            lambda each: f"({each[0][0]} {each[1]} {each[0][1]})"
        ),
        pair.map(lambda each: f"{each[0]}({each[1]})"),
        pair.map(lambda each: f"{each[0]}[{each[1]}]"),
        pair.map(lambda each: f"[{each[0]}, {each[1]}]"),
        inner.map(lambda each: f"{each}[1:]"),
    )


expressions = some.recursive(atoms, grown, max_leaves=8)


def blocks(inner: Any) -> Any:
    body = some.lists(inner, max_size=3).map("".join)
    return some.one_of(
        some.tuples(expressions, body).map(lambda each: f"{{% for x in {each[0]} %}}{each[1]}{{% endfor %}}"),
        some.tuples(expressions, body).map(lambda each: f"{{% if {each[0]} %}}{each[1]}{{% else %}}-{{% endif %}}"),
        body.map(lambda each: f"{{% macro m(x) %}}{each}{{% endmacro %}}{{{{ m(1) }}}}"),
        some.tuples(expressions, body).map(
            lambda each: f"{{% set x %}}{each[1]}{{% endset %}}{{% set y = {each[0]} %}}"
        ),
        body.map(lambda each: f"{{% call m() %}}{each}{{% endcall %}}"),
        body.map(lambda each: f"{{% generation %}}{each}{{% endgeneration %}}"),
    )


statements = some.recursive(
    expressions.map(lambda each: f"{{{{ {each} }}}}")
    | some.text(max_size=5)
    | some.just("{% set ns = namespace(x=1) %}"),
    blocks,
    max_leaves=10,
)


@fuzzed
@given(source=some.lists(statements, max_size=4).map("".join))
def test_templates_that_nobody_wrote(source: str) -> None:
    rendered(source)


@fuzzed
@given(source=some.text(some.sampled_from("{}%#-'\"()[]|.,~ \n\\0abcx"), max_size=60))
def test_characters_that_are_no_template(source: str) -> None:
    rendered(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% set _tensorfold_budget = none %}",
        "{% macro _tensorfold_weighed(x) %}{% endmacro %}",
        "{% for _tensorfold_tick in [1] %}{% endfor %}",
        "{% macro m(_tensorfold_join) %}{% endmacro %}",
    ],
)
def test_what_counts_cannot_be_replaced(source: str) -> None:
    with pytest.raises(CheckpointUnsupported, match="no name for a template"):
        ChatTemplate(source, {}, {})
