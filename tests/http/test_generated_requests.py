"""Requests made up from the API's own description: whatever comes, nothing is the server's fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tensorfold.chat.plain import PlainFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.contracts.chat import ChatTemplates
from tensorfold.http import create_app
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scoring import ScoringEngine, WordTokenizer
from tensorfold.testing.serving import served
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_decisions import decisions_dialect
from tensorfold_dialect_llamacpp import llamacpp_dialect
from tensorfold_dialect_ollama import ollama_dialect
from tensorfold_dialect_openai import openai_dialect
from tensorfold_dialect_vllm import vllm_dialect

schemathesis = pytest.importorskip("schemathesis")

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
TOKENIZER = WordTokenizer(["yes", "no"], ["<|user|>", "<|bot|>"])
TEMPLATE = "{% for message in messages %}<|user|>{{ message.content }}{% endfor %}<|bot|>"


@pytest.fixture(scope="module")
def described() -> Iterator[Any]:
    """The description of a running server."""
    prompts = PromptBuilder(TOKENIZER, ChatTemplates(TEMPLATE), PlainFormat(), vocabulary=TOKENIZER.size)
    odds = dict.fromkeys(range(256), 1 / 256)
    dialects = [
        anthropic_dialect(),
        decisions_dialect(),
        llamacpp_dialect(),
        ollama_dialect(),
        openai_dialect(),
        vllm_dialect(),
    ]
    engine = ScoringEngine(MODEL, prompts, lambda prompt: odds)
    app = create_app(engine=engine, model=MODEL, dialects=dialects, tokenizer=TOKENIZER)
    with served(app) as url:
        yield schemathesis.openapi.from_url(f"{url}/openapi.json")


@pytest.mark.slow
def test_no_request_is_the_servers_fault(described: Any) -> None:
    operations = [result.ok() for result in described.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:

        @settings(max_examples=40, suppress_health_check=SLOW)
        @given(operation.as_strategy())
        def asked(case: Any) -> None:
            assert case.call().status_code < 500, case.formatted_path

        asked()
