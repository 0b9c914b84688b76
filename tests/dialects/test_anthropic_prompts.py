"""What Messages render to: the same as the chat that says the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.contracts.chat import ChatTemplates, Tokenizer
from tensorfold.contracts.dialect import Codec
from tensorfold.ir import Chat, JsonSchema
from tensorfold.testing.dialects import CONTEXT
from tensorfold.testing.tiny_tokenizer import CHAT_TEMPLATE, TINY_VOCABULARY
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_openai import openai_dialect

STRICT = (
    "{%- for message in messages %}{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "[{{ message.role }}]{{ message.content }}{% endfor %}[assistant]"
)
TURNS: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "system", "content": "Keep it short."},
    {"role": "user", "content": "go on"},
]
CODECS = {
    endpoint.path: endpoint.codec
    for dialect in (anthropic_dialect(), openai_dialect())
    for endpoint in dialect.endpoints
}


def rendered(codec: Codec, template: str, tokenizer: Tokenizer, body: dict[str, Any]) -> str:
    builder = PromptBuilder(tokenizer, ChatTemplates(template), PlainFormat(), vocabulary=TINY_VOCABULARY)
    (request,) = codec.decode(json.dumps(body).encode(), CONTEXT).requests
    return builder.prepare(request.prompt).text or ""


@pytest.mark.requirement("T-364", "T-365")
@pytest.mark.parametrize(
    ("template", "shown"),
    [
        (CHAT_TEMPLATE, "<|im_start|>system\nKeep it short.<|im_end|>"),
        (STRICT, "[user]Keep it short."),
    ],
)
def test_later_system_text_keeps_its_place(tokenizer: Tokenizer, template: str, shown: str) -> None:
    """As in chat: in its place with its role, or as a user's message where the template knows no later system."""
    text = rendered(CODECS["/v1/messages"], template, tokenizer, {"max_tokens": 8, "messages": TURNS})
    assert shown in text
    assert text.index("hello") < text.index("Keep it short.") < text.index("go on")
    assert text == rendered(CODECS["/v1/chat/completions"], template, tokenizer, {"messages": TURNS})


def test_a_coding_agents_title_request_asks_for_a_schema() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    body = {
        "max_tokens": 32,
        "system": [{"type": "text", "text": "Generate a concise, sentence-case title (3-7 words)."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "fix the build"}]}],
        "tools": [],
        "temperature": 1,
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }
    (request,) = CODECS["/v1/messages"].decode(json.dumps(body).encode(), CONTEXT).requests
    assert request.grammar == JsonSchema(schema)
    assert isinstance(request.prompt, Chat) and request.prompt.tools == ()
