"""Where messages open, told from ids alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensorfold.chat.openings import message_markers, message_openings
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.chat.template import ChatTemplate
from tensorfold.ir import Chat, TextPrompt
from tensorfold.testing.tiny_tokenizer import CHAT_TEMPLATE

CONTROLS = {"<s>": 1, "</s>": 2, "<u>": 3, "<a>": 4, "<h>": 5, "</h>": 6, "<eot>": 7, "<think>": 8}

EACH = "{% for m in messages %}{% set r = m.role %}"
TEMPLATES = {
    "one opener, one closer": (
        EACH
        + "<h>{{ r }}</h>{{ m.content }}<eot>{% endfor %}{% if add_generation_prompt %}<h>assistant</h>{% endif %}",
        {"<h>"},
    ),
    "an opener for each role": (
        "<s>" + EACH + "{% if r == 'assistant' %}<a><think>{% else %}<u>{% endif %}{{ m.content }}{% endfor %}<a>",
        {"<u>", "<a>"},
    ),
    "only the reply is closed": (
        EACH + "{% if r == 'assistant' %}<a>{{ m.content }}</s>{% else %}<u>{{ m.content }}{% endif %}{% endfor %}<a>",
        {"<a>", "</s>", "<u>"},
    ),
    "plain text": (EACH + "### {{ r }}: {{ m.content }}\n{% endfor %}", set()),
}


@pytest.mark.parametrize(("source", "openings"), TEMPLATES.values(), ids=TEMPLATES)
def test_the_first_control_token_between_two_messages_opens_one(source: str, openings: set[str]) -> None:
    """A token that closes every message alike is passed over."""
    found = message_openings(ChatTemplate(source, CONTROLS, {}))
    assert found == {CONTROLS[spelling] for spelling in openings}


def test_markers_stand_at_the_openings() -> None:
    assert message_markers([3, 9, 4, 9, 3, 3], {3, 4}) == (0, 2, 4, 5)
    assert message_markers([3, 9], ()) == ()


def test_equal_ids_have_equal_markers_however_they_were_given(
    builder: Callable[[str], PromptBuilder], say: Callable[..., Chat]
) -> None:
    """A conversation, and the same rendered text: one plan."""
    prompts = builder(CHAT_TEMPLATE)
    chat = prompts.prepare(say(("system", "be brief"), ("user", "hello")))
    assert chat.text is not None
    text = prompts.prepare(TextPrompt(chat.text))
    assert chat.ids == text.ids
    assert chat.markers == text.markers
    assert len(chat.markers) == 3
