"""Servers whose model says what was reported to go wrong."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from tensorfold.chat.formats import QwenFormat
from tensorfold.testing.whole_server import WholeServer, whole_server
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_decisions import decisions_dialect
from tensorfold_dialect_llamacpp import llamacpp_dialect
from tensorfold_dialect_ollama import ollama_dialect
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_vllm import vllm_dialect

from .asking import Says


@pytest.fixture(scope="session")
def template() -> str:
    """Qwen3.8's, as its vendor publishes it."""
    found = importlib.util.find_spec("trl")
    if found is None or found.origin is None:
        pytest.skip("the vendors' templates are not installed: pip install --no-deps trl")
    return (Path(found.origin).parent / "chat_templates" / "qwen3_8.jinja").read_text(encoding="utf-8")


def serving(template: str, reply: str | Callable[[str], str], **fields: Any) -> AbstractContextManager[WholeServer]:
    dialects = [
        openai_dialect(),
        anthropic_dialect(),
        vllm_dialect(),
        decisions_dialect(),
        llamacpp_dialect(),
        ollama_dialect(),
    ]
    return whole_server(reply, **{"template": template, "format": QwenFormat(), "dialects": dialects, **fields})


@pytest.fixture
def says(template: str) -> Iterator[Says]:
    """`says(reply)`: a server with every dialect; `reply` is a text, or made from the prompt's."""
    with ExitStack() as servers:
        yield lambda reply="Hello.", **fields: servers.enter_context(serving(template, reply, **fields))


@pytest.fixture(scope="module")
def shared(template: str) -> Iterator[WholeServer]:
    """One server for requests that leave it as it was."""
    with serving(template, "Hello.") as server:
        yield server
