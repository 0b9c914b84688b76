"""A tokenizer with control tokens, and templates in the shapes that real ones have."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer
from tensorfold.contracts.chat import ChatTemplates
from tensorfold.ir import Chat, Message, Role, Text
from tensorfold.testing.tiny_tokenizer import TINY_VOCABULARY, tiny_tokenizer

Builder = Callable[[str], PromptBuilder]
Say = Callable[..., Chat]


@pytest.fixture(scope="session")
def tokenizer() -> CheckpointTokenizer:
    return CheckpointTokenizer(tiny_tokenizer(), "bytes")


@pytest.fixture
def builder(tokenizer: CheckpointTokenizer) -> Builder:
    """`builder(template)`: a prompt builder over the tiny tokenizer."""

    def make(template: str) -> PromptBuilder:
        special = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
        templates = ChatTemplates(template, special_tokens=special)
        return PromptBuilder(tokenizer, templates, PlainFormat(), vocabulary=TINY_VOCABULARY)

    return make


@pytest.fixture
def say() -> Say:
    """`say(("user", "hi"), ("assistant", "hello"), tools=...)`: a conversation of plain texts."""

    def make(*turns: tuple[Role, str], **fields: object) -> Chat:
        messages = tuple(Message(role, (Text(text),)) for role, text in turns)
        return Chat(messages, **fields)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def vendor() -> Callable[[str], str]:
    """`vendor("qwen3_8")`: a template as its vendor publishes it, from the package that carries them all."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("the vendors' templates are not installed: pip install --no-deps trl")
    folder = Path(found.origin).parent / "chat_templates"

    def read(name: str) -> str:
        return (folder / f"{name}.jinja").read_text(encoding="utf-8")

    return read
