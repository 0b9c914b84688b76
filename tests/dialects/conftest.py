"""A tiny checkpoint's prompts, for dialects that show what a prompt reads."""

from __future__ import annotations

import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer
from tensorfold.contracts.chat import ChatTemplates, Tokenizer
from tensorfold.testing.tiny_tokenizer import CHAT_TEMPLATE, TINY_VOCABULARY, tiny_tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Byte-level BPE with a few merges."""
    return CheckpointTokenizer(tiny_tokenizer(), "bytes")


@pytest.fixture(scope="session")
def prompts(tokenizer: Tokenizer) -> PromptBuilder:
    """ChatML over it."""
    return PromptBuilder(tokenizer, ChatTemplates(CHAT_TEMPLATE), PlainFormat(), vocabulary=TINY_VOCABULARY)
