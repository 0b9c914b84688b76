"""Second turns: histories with calls, results and odd roles, over a template that is as strict as real ones are."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.ir import Chat, Message, Text, Tool, ToolCall, ToolResult

STRICT = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the beginning.') }}{% endif %}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('Unexpected message role.') }}{% endif %}
{%- if message.content is not string %}{{ raise_exception('Unexpected content type.') }}{% endif %}
<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls %}
<tool_call>
<function={{ call.function.name }}>
{%- for name, value in call.function.arguments.items() %}
<parameter={{ name }}>
{{ value if value is string else value | tojson }}
</parameter>
{%- endfor %}
</function>
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TOOLS = (Tool("lookup", None, {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),)


@pytest.fixture
def prompts(builder: Any) -> Any:
    return builder(STRICT)


def turn(arguments: str, *before: Text) -> Chat:
    return Chat(
        (
            Message("user", (Text("Look up Paris"),)),
            Message("assistant", (*before, ToolCall("a", "lookup", arguments))),
            Message("tool", (ToolResult("a", (Text("31C"),)),)),
        ),
        TOOLS,
    )


@pytest.mark.requirement("T-085")
@pytest.mark.parametrize(
    ("spelled", "read"),
    [
        (r"\ud83d", "\ufffd"),
        (r"a\uDC0Ab", "a\ufffdb"),
        (r"\ud83d\ud83d\ude00", "\ufffd😀"),
        (r"\ud83c\udf27", "🌧"),
        (r"\\ud83d", r"\ud83d"),
        (r"\\\ud83d\n", "\\\ufffd\n"),
    ],
)
def test_a_call_with_half_a_character_may_be_sent_back(prompts: Any, spelled: str, read: str) -> None:
    """A call in which a model has escaped half of a surrogate pair may be sent back."""
    assert f"<parameter=city>\n{read}\n</parameter>" in prompts.prepare(turn(f'{{"city": "{spelled}"}}')).text


def test_a_second_turn_holds_the_calls_name_its_argument_and_the_result(prompts: Any) -> None:
    text = prompts.prepare(turn('{"city": "Paris"}')).text
    assert text.index("<function=lookup>") < text.index("<parameter=city>\nParis\n</parameter>") < text.index("31C")


def test_arguments_that_are_spaced_otherwise_give_the_same_prompt(prompts: Any) -> None:
    assert prompts.prepare(turn('{"city":"Paris"}')) == prompts.prepare(turn('{ "city" : "Paris" }'))


def test_a_turn_of_calls_without_text_is_the_same_however_it_is_said(prompts: Any) -> None:
    """Null content, empty content and none at all."""
    first, second = prompts.prepare(turn("{}")), prompts.prepare(turn("{}", Text("")))
    assert first == second
    assert "None" not in first.text
    assert "<function=lookup>" in first.text


def test_a_later_system_message_is_rendered_in_its_place(prompts: Any, say: Any) -> None:
    """Templates raise on it; the conversation goes on all the same."""
    chat = say(
        ("system", "S1"), ("user", "hi"), ("assistant", "hello"), ("system", "S2: reply GREEN"), ("user", "sky?")
    )
    text = prompts.prepare(chat).text
    assert text.index("S1") < text.index("hello") < text.index("S2: reply GREEN") < text.index("sky?")


def test_a_developer_is_a_system_where_the_template_knows_none(prompts: Any, say: Any) -> None:
    text = prompts.prepare(say(("developer", "Be brief."), ("user", "hi"))).text
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>")


def test_a_growing_conversation_keeps_its_beginning(prompts: Any, say: Any) -> None:
    """What was computed for one turn is the beginning of the next."""
    turns = [("system", "S"), ("user", "a"), ("assistant", "b"), ("user", "c"), ("system", "d"), ("user", "e")]
    texts = [prompts.prepare(say(*turns[:count])).text.removesuffix("<|im_start|>assistant\n") for count in (2, 4, 6)]
    assert texts[1].startswith(texts[0])
    assert texts[2].startswith(texts[1])
