"""What the contract of dialects tries this one with."""

from __future__ import annotations

from tensorfold.contracts.examples import DialectExample

__all__ = ["EXAMPLE"]

EXAMPLE = DialectExample(
    dialect="decisions",
    inquiry_bodies={
        "/v1/decisions": b"""{
            "input": "I was charged twice.",
            "questions": [
                {"id": "topic", "type": "choice", "question": "About?", "options": [{"name": "bill"}, {"name": "other"}]},
                {"id": "anger", "type": "score", "question": "How angry?", "levels": ["calm", "angry", "furious"]}
            ]
        }""",
        "/v1/systemone": b"""{
            "state": {"subject": "Charge"},
            "questions": {"anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "angry"]}}
        }""",
    },
)
