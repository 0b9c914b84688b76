"""What a rendering may cost: a hostile template, or a conversation made to hurt one, is a refusal and no hang."""

from __future__ import annotations

import threading

import pytest

from tensorfold.chat import budget
from tensorfold.chat.messages import TemplateMessage
from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.errors import InvalidRequest

USER: list[TemplateMessage] = [{"role": "user", "content": "0123456789" * 1000}]


def render(source: str, messages: list[TemplateMessage] = USER) -> str:
    return ChatTemplate(source, {}, {}).render(Conversation(messages)).text


NINES = "{% for a in range(99999) %}"


@pytest.mark.parametrize(
    "source",
    [
        NINES * 3 + "{% endfor %}" * 3,
        "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(30) }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}" + NINES * 2 + "{% call m() %}{% endcall %}" + "{% endfor %}" * 2,
        NINES + NINES + "{{ 'x'.upper() }}" + "{% endfor %}{% endfor %}",
        "{% for a in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
        "{{ range(100001) | list }}",
    ],
    ids=["loops", "recursion", "fan", "call blocks", "calls", "recursive loop", "range"],
)
def test_work_is_bounded(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_STEPS", 20_000)
    with pytest.raises(InvalidRequest):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10**9 }}",
        "{{ 10**9 * 'x' }}",
        "{{ [1] * 10**9 }}",
        "{% set ns = namespace(x='x' * 1000) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x='x' * 1000) %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% set x = messages[0].content * 1000 %}{% for i in range(99) %}{{ x }}{% endfor %}",
        "{% set x %}{% for i in range(9999) %}{{ messages[0].content }}{% endfor %}{% endset %}{{ x }}",
        "{{ messages[0].content.replace('0', messages[0].content * 100) }}",
        "{{ (messages[0].content * 1000).join(['a'] * 100) }}",
        "{{ 'x'.ljust(10**9) }}",
        "{{ '\t'.expandtabs(10**9) }}",
        "{{ 'x'.zfill(10**9) }}",
        "{{ 'x' | center(10**9) }}",
        "{{ 'x' | indent(10**9, true) }}",
        "{{ ('x\n' * 10**6) | indent(9999) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%(a)999999999d' | format(a=1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ '{a:999999999}'.format_map({'a': 1}) }}",
        "{{ [1] | tojson(indent=10**9) }}",
        "{{ 2 ** (10**9) }}",
        "{% set ns = namespace(x=2**999) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
        "{{ [1] | batch(10**9, 1) | list }}",
        "{{ lipsum(n=10**6) }}",
    ],
)
def test_text_is_bounded(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_TEXT", 2_000_000)
    with pytest.raises(InvalidRequest):
        render(source)


def test_copies_of_text_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_COPIED", 1_000_000)
    with pytest.raises(InvalidRequest, match="copies more than"):
        render("{% set x = messages[0].content %}{% for i in range(200) %}{% set y = x + x %}{% endfor %}")


def test_deep_values_are_written_or_refused() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidRequest):
        render("{{ messages[0].deep | tojson }}", [{"role": "user", "content": "x", "deep": value}])  # type: ignore[dict-item]


def test_each_rendering_has_a_budget_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_STEPS", 100)
    template = ChatTemplate("{% for i in range(60) %}{{ i }}{% endfor %}", {}, {})
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.extend(template.render(Conversation(USER)).text for _ in range(20)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["".join(map(str, range(60)))] * 60


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'In 2026, %s of 123456' % 'x' }}", "In 2026, x of 123456"),
        ("{{ '%5.2f|%-4s|%%' | format(1.5, 'a') }}", " 1.50|a   |%"),
        ("{{ '{:>4}|{}'.format('a', 12345678) }}", "   a|12345678"),
        ("{{ 'x' | center(5) }}|{{ 'a\nb' | indent(2) }}|{{ 'x'.rjust(3) }}", "  x  |a\n  b|  x"),
        ("{{ 'a-b'.split('-') | join('+') }}{{ 7 % 4 }}{{ 2 ** 10 }}{{ [1] + [2] }}", "a+b31024[1, 2]"),
        ("{{ 'abc'.find('c', 0) }}{{ 'aXbX'.replace('X', '') }}", "2ab"),
    ],
)
def test_ordinary_formatting_is_as_in_jinja(source: str, text: str) -> None:
    assert render(source) == text
