"""Templates that refuse or drop a message are given another in its place, and the text is kept."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tensorfold.chat.manners import Manners, manners_of
from tensorfold.chat.messages import TemplateMessage
from tensorfold.chat.template import ChatTemplate, Conversation

ANY = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
KNOWS = ANY + "{% if messages[0].role == 'developer' %}!{% endif %}"
STRICT = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('first!') }}"
    "{% elif m.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('role!') }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}{% endfor %}"
)
DROPS = "{% for m in messages %}{% if m.role in ['user', 'assistant'] or loop.first %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}"
NONE = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{% endfor %}"


def manners(source: str) -> Manners:
    return manners_of(ChatTemplate(source, {}, {}))


def turns(*pairs: tuple[str, str]) -> list[TemplateMessage]:
    return [{"role": role, "content": text} for role, text in pairs]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (ANY, Manners(developer=False)),
        (KNOWS, Manners()),
        (STRICT, Manners(developer=False, several_systems=False, late_system=False)),
        (DROPS, Manners(developer=False, several_systems=False, late_system=False)),
        (NONE, Manners(developer=False)),
    ],
    ids=["any role", "knows developers", "strict", "drops", "no system"],
)
def test_what_a_template_renders_is_found_by_trial(source: str, expected: Manners) -> None:
    assert manners(source) == expected


CONVERSATION = turns(
    ("system", "S1"), ("developer", "D"), ("user", "hi"), ("assistant", "hello"), ("system", "S2"), ("user", "sky?")
)


@pytest.mark.parametrize("source", [STRICT, DROPS])
def test_a_conversation_that_a_template_would_refuse_or_shorten_is_rendered_whole(source: str) -> None:
    """A later system message stays in its place, as a user's."""
    template = ChatTemplate(source, {}, {})
    adapted = manners_of(template).adapt(CONVERSATION)
    assert template.render(Conversation(adapted)).text == "[system]S1\n\nD[user]hi[assistant]hello[user]S2[user]sky?"


def test_a_template_that_renders_everything_gets_it_as_it_is() -> None:
    assert Manners().adapt(CONVERSATION[2:]) == CONVERSATION[2:]
    assert Manners().adapt(turns(("developer", "D"), ("user", "x"))) == turns(("developer", "D"), ("user", "x"))


def test_a_developer_after_a_user_is_a_later_system_message() -> None:
    late = turns(("user", "x"), ("developer", "D"))
    assert Manners().adapt(late) == turns(("user", "x"), ("system", "D"))
    assert Manners(late_system=False).adapt(late) == turns(("user", "x"), ("user", "D"))


def test_the_given_messages_are_not_changed() -> None:
    given = turns(*[(str(m["role"]), str(m["content"])) for m in CONVERSATION])
    Manners(developer=False, several_systems=False, late_system=False).adapt(given)
    assert given == CONVERSATION


def test_a_conversations_beginning_is_rendered_alike_however_it_goes_on() -> None:
    """Kept prefixes would be lost if a later message changed how the earlier ones are rendered."""
    template = ChatTemplate(STRICT, {}, {})
    fitting = manners_of(template)
    texts = [
        template.render(Conversation(fitting.adapt(CONVERSATION[:count]))).text
        for count in range(1, len(CONVERSATION) + 1)
    ]
    assert all(longer.startswith(shorter) for shorter, longer in pairwise(texts))
