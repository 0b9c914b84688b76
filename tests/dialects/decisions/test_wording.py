"""What the model reads of a question: its wording, the template's switches, and where prompts branch."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tensorfold.http import Application
from tensorfold.ir import Chat, Score, Scored
from tensorfold.testing.scoring import ScoringEngine

from .bodies import KEYED, O_PREDICATE, ORDERED, SYSTEM_ONE
from .model import PROMPTS, TOKENIZER, answered, asked


@pytest.mark.requirement("T-047", "T-071", "T-072", "T-073", "T-074", "T-076")
def test_the_wording_of_format_1(app: Application, engine: ScoringEngine) -> None:
    """The input, an empty line, the question, a line for each option, the closing instruction; thinking off."""
    answered(app, "/v1/decisions", KEYED)
    topic, anger, spam = asked(engine)
    assert topic == (
        "I was charged twice.\n\nQuestion: What is it about?\n"
        'A: billing\nB: other - {"é":[1,"x"]}\nAnswer with the letter of one option only.'
    )
    assert anger == (
        "I was charged twice.\n\nQuestion: How angry?\n"
        "0: calm\n1: angry\n2: furious\nAnswer with the number of one level only."
    )
    assert spam == (
        "I was charged twice.\n\nIs the following true? It is spam.\nyes: an advertisement\nAnswer with yes or no only."
    )
    for prompt in engine.scored:
        assert isinstance(prompt, Chat)
        assert prompt.template_kwargs == {"enable_thinking": False}
        assert prompt.messages[0].role == "user"


@pytest.mark.requirement("Y-056", "Y-060", "Y-066")
def test_input_is_a_text_or_messages_of_the_user(app: Application, engine: ScoringEngine) -> None:
    """One string, or user messages with text alone; `model` is optional."""
    items = [
        {"role": "user", "content": "one"},
        {"role": "user", "type": "message", "content": [{"type": "input_text", "text": "two"}]},
    ]
    answered(app, "/v1/decisions", {"input": items, "questions": [O_PREDICATE]})
    assert asked(engine)[0].startswith("one\ntwo\n\nQuestion: ")


@pytest.mark.requirement("T-083", "T-084")
def test_template_switches_of_decisions(app: Application) -> None:
    """Absent, null, empty, or thinking off; anything else is a 400."""
    given: object
    for given in (None, {}, {"enable_thinking": False}):
        answered(app, "/v1/decisions", {**KEYED, "chat_template_kwargs": given})
    for given in ({"enable_thinking": True}, {"enable_thinking": 0}, {"mood": "x"}, [], "x"):
        told = answered(app, "/v1/decisions", {**KEYED, "chat_template_kwargs": given}, status=400)
        assert told["error"]["param"] == "chat_template_kwargs"


@pytest.mark.requirement("Y-071")
def test_template_switches_of_system_one_reach_the_template(app: Application, engine: ScoringEngine) -> None:
    """`chat_template_kwargs` of `/v1/systemone`."""
    answered(app, "/v1/systemone", {**SYSTEM_ONE, "chat_template_kwargs": {"mood": "!"}})
    prepared = PROMPTS.prepare(engine.scored[0])
    assert prepared.text is not None and prepared.text.endswith("<|bot|>!")


@pytest.mark.requirement("Y-074")
@pytest.mark.parametrize("path", ["/v1/decisions", "/v1/systemone"])
@pytest.mark.parametrize("said", [{}, {"enable_thinking": False}, {"enable_thinking": None}, {"enable_thinking": 0}])
def test_every_question_is_rendered_with_thinking_off(
    app: Application, engine: ScoringEngine, path: str, said: dict[str, Any]
) -> None:
    """Whatever else the request says of it, and a value that is no switch leaves nothing to the template's own default."""
    if path == "/v1/systemone":
        answered(app, path, {**SYSTEM_ONE, "chat_template_kwargs": said})
    else:
        answered(app, path, ORDERED)
    prompts = [prompt for prompt in engine.scored if isinstance(prompt, Chat)]
    assert len(prompts) == 3
    assert all(prompt.template_kwargs["enable_thinking"] is False for prompt in prompts)


@pytest.mark.requirement("Y-074")
@pytest.mark.parametrize("said", [{"enable_thinking": True}, {"thinking": True}, {"thinking": {"type": "enabled"}}])
def test_a_question_that_shall_be_thought_about_is_refused(app: Application, said: dict[str, Any]) -> None:
    """The label would be read where the reasoning begins."""
    told = answered(app, "/v1/systemone", {**SYSTEM_ONE, "chat_template_kwargs": said}, status=400)["error"]
    assert told["param"] == "chat_template_kwargs"


@pytest.mark.requirement("Y-080", "Y-081")
def test_the_questions_of_a_request_run_at_once_and_begin_alike(app: Application, engine: ScoringEngine) -> None:
    """Every question is scored before the first is answered, and the input stands before what differs."""
    arrived = 0
    score = engine.score

    async def waiting(request: Score) -> Scored:
        nonlocal arrived
        arrived += 1
        while arrived < 3:
            await asyncio.sleep(0)
        return await score(request)

    engine.score = waiting  # type: ignore[method-assign]
    answered(app, "/v1/systemone", SYSTEM_ONE)
    starts = {text.partition("\n\n")[0] for text in asked(engine)}
    assert starts == {'{"subject":"Charge","n":2}'}


@pytest.mark.requirement("Y-081")
@pytest.mark.parametrize(
    ("path", "body"), [("/v1/decisions", KEYED), ("/v1/decisions", ORDERED), ("/v1/systemone", SYSTEM_ONE)]
)
def test_a_prompt_branches_where_its_input_ends(
    app: Application, engine: ScoringEngine, path: str, body: dict[str, Any]
) -> None:
    """At one place for all questions, and at the same for one that is asked alone: how it is computed is its own matter."""
    asked: list[Score] = []
    score = engine.score

    async def noting(request: Score) -> Scored:
        asked.append(request)
        return await score(request)

    engine.score = noting  # type: ignore[method-assign]
    answered(app, path, body)
    questions = body["questions"]
    first = dict([next(iter(questions.items()))]) if isinstance(questions, dict) else questions[:1]
    answered(app, path, {**body, "questions": first})
    assert len(asked) == len(questions) + 1
    (place,) = {request.branch for request in asked}
    (before,) = {PROMPTS.prepare(request.prompt).ids[:place] for request in asked}
    text = b"".join(map(TOKENIZER.token_bytes, before)).decode()
    given = body.get("input", body.get("state"))
    assert text.endswith(given if isinstance(given, str) else json.dumps(given, separators=(",", ":")))
