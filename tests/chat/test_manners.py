"""Templates that refuse or drop a message are given another in its place, and the text is kept."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest

from tensorfold.chat.manners import Manners, manners_of
from tensorfold.chat.messages import TemplateMessage
from tensorfold.chat.template import ChatTemplate, Conversation

ANY = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}{{ c.function.arguments }}{% endfor %}{% endfor %}"
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}"
    "{% elif m.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('role!') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% for c in m.tool_calls %}{% for k, v in c.function.arguments | items %}{{ k }}={{ v }}"
    "{% endfor %}{% endfor %}{% endfor %}"
)
DROPS = "{% for m in messages %}{% if m.role in ['user', 'assistant'] or loop.first %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
NONE = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}"
TURNS = (
    "{% for m in messages %}{% if not loop.first and m.role == loop.previtem.role %}{{ raise_exception('turns!') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)


CAREFUL = ANY.replace(
    "{% for c",
    "{% if m.tool_calls | length > 1 or m.role == 'tool' and not loop.previtem.tool_calls %}{{ raise_exception('?') }}"
    "{% endif %}{% for c",
)


def manners(source: str) -> Manners:
    return manners_of(ChatTemplate(source, {}, {}))


def turns(*pairs: tuple[str, str]) -> list[TemplateMessage]:
    return [{"role": role, "content": text} for role, text in pairs]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ANY, Manners()),
        (STRICT, Manners(late_system=False, text_arguments=False)),
        (DROPS, Manners(late_system=False, text_arguments=False)),
        (CAREFUL, Manners(several_calls=False, stray_results=False)),
        (NONE, Manners(text_arguments=False)),
        (TURNS, Manners(several_users=False, text_arguments=False)),
    ],
    ids=["any role", "strict", "drops", "careful", "no system", "turns"],
)
def test_what_a_template_renders_is_found_by_trial(source: str, expected: Manners) -> None:
    assert manners(source) == expected


CONVERSATION = turns(
    ("system", "S1"), ("developer", "D"), ("user", "hi"), ("assistant", "hello"), ("system", "S2"), ("user", "sky?")
)


@pytest.mark.requirement("T-168", "T-169", "T-170", "T-171", "Y-013")
@pytest.mark.parametrize("source", [STRICT, DROPS])
def test_a_conversation_that_a_template_would_refuse_or_shorten_is_rendered_whole(source: str) -> None:
    """Leading system and developer messages are one; a later one stays in its place, as a user's where it must."""
    template = ChatTemplate(source, {}, {})
    adapted = manners_of(template).adapt(CONVERSATION)
    assert template.render(Conversation(adapted)).text == "[system]S1\n\nD[user]hi[assistant]hello[user]S2[user]sky?"


def test_a_later_system_message_is_one_where_the_template_renders_it() -> None:
    adapted = Manners().adapt(turns(("developer", "D"), ("user", "x"), ("developer", "E"), ("system", "F")))
    assert adapted == turns(("system", "D"), ("user", "x"), ("system", "E"), ("system", "F"))


def test_users_that_may_not_follow_each_other_are_one() -> None:
    """Templates of models that only know turns; a later system message is a user's there."""
    given = turns(("user", "a"), ("user", "b"), ("assistant", "c"), ("system", "d"), ("user", ""), ("user", "e"))
    adapted = Manners(late_system=False, several_users=False).adapt(given)
    assert adapted == turns(("user", "a\n\nb"), ("assistant", "c"), ("user", "d\n\ne"))


def test_arguments_that_do_not_parse_are_an_object_where_they_must() -> None:
    """A call that was cut does not make the next turn fail."""
    call = {"type": "function", "function": {"name": "f", "arguments": '{"city": "Par'}}
    given: list[TemplateMessage] = [{"role": "assistant", "content": "", "tool_calls": [call]}]  # type: ignore[list-item]
    before = copy.deepcopy(given)
    text = ChatTemplate(STRICT, {}, {}).render(Conversation(manners(STRICT).adapt(given))).text
    assert text == '[assistant]arguments={"city": "Par'
    assert given == before
    assert '{"city": "Par' in ChatTemplate(ANY, {}, {}).render(Conversation(manners(ANY).adapt(given))).text


@pytest.mark.requirement("T-173")
def test_the_given_messages_are_not_changed() -> None:
    """What is adapted is a copy."""
    given = copy.deepcopy(CONVERSATION)
    Manners(late_system=False, several_users=False, text_arguments=False).adapt(given)
    assert given == CONVERSATION


def test_a_conversations_beginning_is_rendered_alike_however_it_goes_on() -> None:
    """Kept prefixes would be lost if a later message changed how the earlier ones are rendered."""
    template = ChatTemplate(STRICT, {}, {})
    fitting = manners_of(template)
    texts = [
        template.render(Conversation(fitting.adapt(CONVERSATION[:count]))).text
        for count in range(2, len(CONVERSATION) + 1)
    ]
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(texts))


def test_a_template_that_takes_one_call_a_turn_gets_each_with_its_results() -> None:
    """By their ids, and those without one in their order; a result behind no call is what the user says."""

    def call(name: str, id: str | None) -> TemplateMessage:
        own: TemplateMessage = {"type": "function", "function": {"name": name, "arguments": {"x": name}}}
        return own if id is None else {**own, "id": id}

    def result(text: str, id: str | None) -> TemplateMessage:
        return {"role": "tool", "content": text, **({} if id is None else {"tool_call_id": id})}

    def calling(*calls: TemplateMessage) -> TemplateMessage:
        return {"role": "assistant", "content": "ok", "tool_calls": [*calls]}

    given = [
        *turns(("user", "u")),
        result("stray", "z"),
        calling(call("a", "1"), call("b", None), call("c", "3")),
        result("C", "3"),
        result("B", None),
        result("A", "1"),
    ]
    text = ChatTemplate(CAREFUL, {}, {}).render(Conversation(manners(CAREFUL).adapt(given))).text
    assert text == (
        "[user]u[user]stray[assistant]ok{'x': 'a'}[tool]A[assistant]{'x': 'b'}[tool]B[assistant]{'x': 'c'}[tool]C"
    )
