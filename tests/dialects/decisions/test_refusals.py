"""Decisions that are refused: each refusal names the field or the question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.contracts.chat import ChatTemplates
from tensorfold.errors import ContextLengthExceeded, Rejected
from tensorfold.http import Application, create_app
from tensorfold.ir import Prompt
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scoring import ScoringEngine, WordTokenizer
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold_dialect_decisions import decisions_dialect

from .bodies import CHOICE, KEYED, O_CHOICE, O_PREDICATE, O_SCORE, ORDERED, SCORE, SYSTEM_ONE, YES_NO, one
from .model import PROMPTS, TEMPLATE, TOKENIZER, answered, odds

# ---- bodies ----


def keyed(**fields: Any) -> dict[str, Any]:
    return {**KEYED, **fields}


def ordered(**fields: Any) -> dict[str, Any]:
    return {**ORDERED, **fields}


def system(**question: Any) -> dict[str, Any]:
    return {"state": "x", "questions": {"q": question}}


@pytest.mark.requirement("Y-055", "T-084")
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "questions"),
        (keyed(questions=[]), "questions"),
        (keyed(questions={"q": {}}), "questions"),
        ({"state": "x", "questions": {}}, "questions"),
        (keyed(questions=[CHOICE, O_PREDICATE]), "questions"),
        (one(CHOICE, instructions="x"), "questions"),
        ({"input": "x", "questions": [{"type": "score", "levels": ["a", "b"]}]}, "questions"),
        ({"input": "x", "temperature": 1, "questions": [{"type": "score", "levels": ["a", "b"]}]}, "questions[0].id"),
        (keyed(input=" "), "input"),
        (keyed(input=None), "input"),
        (keyed(temperature=0), "temperature"),
        (keyed(prompt_format_version=2), "prompt_format_version"),
        (keyed(images=["x"]), "images"),
        (keyed(extra=1), "extra"),
        (one(CHOICE, extra=1), "questions[0].extra"),
        (one(CHOICE, id=" "), "questions[0].id"),
        (one(CHOICE, question=""), "questions[0].question"),
        (keyed(questions=[CHOICE, CHOICE]), "questions[1].id"),
        (one(CHOICE, options=[{"name": "a"}]), "questions[0].options"),
        (one(CHOICE, options=[{"name": f"n{number}"} for number in range(27)]), "questions[0].options"),
        (one(CHOICE, options=[{"name": "a"}, {"name": " A"}]), "questions[0].options[1].name"),
        (one(CHOICE, options=[{"name": "a"}, {"name": "b\n"}]), "questions[0].options[1].name"),
        (one(CHOICE, options=[{"name": "a"}, {"name": ""}]), "questions[0].options[1].name"),
        (one(SCORE, levels=["a"]), "questions[0].levels"),
        (one(SCORE, levels=["a"] * 11), "questions[0].levels"),
        (ordered(extra=1), "extra"),
        (ordered(input=[{"role": "assistant", "content": "x"}]), "input[0]"),
        (ordered(input=[{"type": "function_call", "name": "f"}]), "input[0]"),
        (ordered(input=[{"role": "user"}]), "input[0].content"),
        (ordered(input=[{"role": "user", "content": [{"type": "input_image"}]}]), "input[0].content[0]"),
        (ordered(input=[]), "input"),
        (ordered(safety_identifier="x" * 129), "safety_identifier"),
        (one(O_PREDICATE, instructions=""), "questions[0].instructions"),
        (one(O_PREDICATE, extra=1), "questions[0].extra"),
        (one(O_CHOICE, choices=[{"value": "a"}, {"value": "a"}]), "questions[0].choices[1].value"),
        (one(O_CHOICE, choices=[{"value": 1}, {"value": 2}]), "questions[0].choices[0].value"),
    ],
)
def test_a_malformed_decision_is_named(app: Application, body: dict[str, Any], param: str) -> None:
    """Told apart by field names; a mix is a 400, and so is an unknown key."""
    assert answered(app, "/v1/decisions", body, status=400)["error"]["param"] == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "state"),
        ({"state": " ", "questions": {}}, "state"),
        ({"state": "x", "questions": {}}, "questions"),
        ({"state": "x", "questions": []}, "questions"),
        (system(type="box", instructions="x"), None),
        (system(type="x" * 5000, instructions="x"), None),
        (system(type="noul"), None),
        (system(type="noul", instructions=""), "questions.q.instructions"),
        (system(type="choice", instructions="x", criteria={"a": None}), "questions.q.criteria"),
        (system(type="score", instructions="x", criteria=["a"]), "questions.q.criteria"),
        ({**SYSTEM_ONE, "images": ["x"]}, "images"),
        ({**SYSTEM_ONE, "temperature": 2}, "temperature"),
    ],
)
def test_a_malformed_state_is_named(app: Application, body: dict[str, Any], param: str | None) -> None:
    told = answered(app, "/v1/systemone", body, status=400)["error"]
    assert param is None or told["param"] == param
    assert len(told["message"]) < 300


@pytest.mark.requirement("Y-057", "Y-058", "Y-059", "Y-061", "Y-062")
def test_the_bounds_of_questions(app: Application) -> None:
    """Up to 64 questions, 2 to 26 choices, 2 to 10 levels; names are echoed in order."""

    def choices(count: int) -> dict[str, Any]:
        return {**O_CHOICE, "choices": [{"value": f"v{number}"} for number in range(count)]}

    def levels(count: int) -> dict[str, Any]:
        return {**O_SCORE, "levels": [{"label": f"l{number}"} for number in range(count)]}

    def named(count: int) -> list[dict[str, Any]]:
        return [{**O_PREDICATE, "name": f"n{number}"} for number in range(count)]

    told = answered(app, "/v1/decisions", {**ORDERED, "questions": named(64)})
    assert [answer["name"] for answer in told["answers"]] == [f"n{number}" for number in range(64)]
    answered(app, "/v1/decisions", {**ORDERED, "questions": [choices(26), levels(10)]})
    for questions in ([choices(27)], [choices(1)], [levels(11)], [levels(1)], named(65)):
        answered(app, "/v1/decisions", {**ORDERED, "questions": questions}, status=400)


# ---- what a model cannot decide ----


@pytest.mark.requirement("T-075", "T-082")
def test_a_label_that_is_not_one_token_is_refused(app: Application) -> None:
    """Each label is one distinct token at the answer position, else 400."""
    few = WordTokenizer(["yes"], ["<|user|>", "<|bot|>"])
    merging = WordTokenizer(["<|bot|>A", "yes", "no"], [])
    for tokenizer, question, label in ((few, YES_NO, "no"), (merging, CHOICE, "A")):
        prompts = PromptBuilder(tokenizer, ChatTemplates(TEMPLATE), PlainFormat(), vocabulary=tokenizer.size)
        engine = ScoringEngine(MODEL, prompts, odds)
        other = create_app(engine=engine, model=MODEL, dialects=[decisions_dialect()], tokenizer=tokenizer)
        told = answered(other, "/v1/decisions", {**KEYED, "questions": [question]}, status=400)
        assert f"question {question['id']!r}: the label {label!r}" in told["error"]["message"]
        other.close()


@pytest.mark.requirement("T-068", "T-069", "Y-054")
def test_an_engine_that_cannot_score_answers_400(engine: ScoringEngine) -> None:
    """Every engine that can score serves decisions; another one answers 400."""
    plain = ScriptedEngine(MODEL, lambda request: reply_events(["ok"]), PROMPTS)
    app = create_app(engine=plain, model=MODEL, dialects=[decisions_dialect()], tokenizer=TOKENIZER)
    for path, body in (("/v1/decisions", KEYED), ("/v1/decisions", ORDERED), ("/v1/systemone", SYSTEM_ONE)):
        told = answered(app, path, body, status=400)
        assert "cannot score" in told["error"]["message"]
    app.close()


@pytest.mark.requirement("T-082")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ContextLengthExceeded("This server's maximum context length is 8", param="messages"), 400),
        (Rejected("full"), 503),
    ],
)
def test_a_question_that_cannot_be_scored_is_told(error: Exception, status: int) -> None:
    """What the window cannot hold is a 400 that names the question."""

    def refuse(prompt: Prompt) -> Mapping[int, float]:
        raise error

    engine = ScoringEngine(MODEL, PROMPTS, refuse)
    app = create_app(engine=engine, model=MODEL, dialects=[decisions_dialect()], tokenizer=TOKENIZER)
    told = answered(app, "/v1/decisions", KEYED, status=status)["error"]
    if status == 400:
        assert (told["code"], told["param"]) == ("context_length_exceeded", "input")
        assert told["message"].startswith("question 'topic': ")
    app.close()
