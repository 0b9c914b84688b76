"""A model whose odds of every label are known, and how it is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tensorfold.chat.plain import PlainFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.contracts.chat import ChatTemplates
from tensorfold.http import Application
from tensorfold.ir import Chat, Prompt, Text
from tensorfold.testing.asgi import ask
from tensorfold.testing.scoring import ScoringEngine, WordTokenizer

TEMPLATE = "{% for message in messages %}<|user|>{{ message.content }}{% endfor %}<|bot|>{{ mood or '' }}"
WORDS = ["yes", "no", "Yes", " yes", " NO", "NOT", " A", "\tA", " B", "YES ", "A."]
TOKENIZER = WordTokenizer(WORDS, ["<|user|>", "<|bot|>"])
PROMPTS = PromptBuilder(TOKENIZER, ChatTemplates(TEMPLATE), PlainFormat(), vocabulary=TOKENIZER.size)


def tokens(*spellings: str) -> list[int]:
    """Their ids."""
    found = [TOKENIZER.token_id(spelling) for spelling in spellings]
    return [token for token in found if token is not None]


def odds(prompt: Prompt) -> Mapping[int, float]:
    """A distribution over labels in all their spellings; the rest goes to an exclamation mark."""
    (user,) = tokens("!")
    spelled = {"A": 0.1, " A": 0.2, "\tA": 0.1, "B": 0.05, " B": 0.05, "yes": 0.1, "Yes": 0.1, " yes": 0.05, "no": 0.02}
    spelled |= {" NO": 0.01, "0": 0.06, "1": 0.03, "2": 0.01}
    shares = {token: share for spelling, share in spelled.items() for token in tokens(spelling)}
    return {**shares, user: 1 - sum(shares.values())}


def answered(app: Application, path: str, body: object, status: int = 200) -> dict[str, Any]:
    """What is told, with that status."""
    reply = ask(app, "POST", path, body=json.dumps(body).encode())
    assert reply.status == status, reply.body
    read: dict[str, Any] = json.loads(reply.body)
    return read


def asked(engine: ScoringEngine) -> list[str]:
    """What the model was asked, question by question."""
    texts: list[str] = []
    for prompt in engine.scored:
        assert isinstance(prompt, Chat)
        (message,) = prompt.messages
        (part,) = message.parts
        assert isinstance(part, Text)
        texts.append(part.text)
    return texts
