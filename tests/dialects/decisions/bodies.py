"""What is asked for in each of the three APIs: a choice, a score, and a yes or no."""

from __future__ import annotations

from typing import Any

CHOICE: dict[str, Any] = {
    "id": "topic",
    "type": "choice",
    "question": "What is it about?",
    "options": [{"name": " billing "}, {"name": "other", "description": {"é": [1, "x"]}}],
}
SCORE: dict[str, Any] = {
    "id": "anger",
    "type": "score",
    "question": "How angry?",
    "levels": ["calm", "angry", "furious"],
}
YES_NO: dict[str, Any] = {"id": "spam", "type": "yes_no", "question": "It is spam.", "yes": "an advertisement"}
KEYED: dict[str, Any] = {"input": "I was charged twice.", "questions": [CHOICE, SCORE, YES_NO]}
"""SGLang's shape: each question has an id."""

O_CHOICE: dict[str, Any] = {
    "type": "choice",
    "name": "c",
    "instructions": "What is it about?",
    "choices": [{"value": "billing", "description": "money"}, {"value": True}],
}
O_SCORE: dict[str, Any] = {
    "type": "score",
    "instructions": [{"type": "input_text", "text": "How angry?"}],
    "levels": [{"label": "calm"}, {"label": "angry", "description": "loud"}],
}
O_PREDICATE: dict[str, Any] = {"type": "predicate", "instructions": "It is spam."}
ORDERED: dict[str, Any] = {"model": "m", "input": "I was charged twice.", "questions": [O_CHOICE, O_SCORE, O_PREDICATE]}
"""OpenAI's shape: answers come in the order of the questions."""

SYSTEM_ONE: dict[str, Any] = {
    "state": {"subject": "Charge", "n": 2},
    "questions": {
        "topic": {
            "type": "choice",
            "instructions": "What is it about?",
            "criteria": {"billing": "money", "other": None},
        },
        "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "angry"]},
        "spam": {"type": "noul", "instructions": "Spam?", "criteria": {"true": "an advertisement"}},
    },
}
"""A state, and questions about it by name."""


def one(base: dict[str, Any], /, **fields: Any) -> dict[str, Any]:
    """A body that asks one question, with some of its fields changed."""
    return {"input": "x", "questions": [{**base, **fields}]}
