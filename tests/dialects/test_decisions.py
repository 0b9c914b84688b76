"""Decisions, in the three APIs that ask for them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import openai
import pytest
import typesafe_sdk

from tensorfold.chat.plain import PlainFormat
from tensorfold.chat.prompt import PromptBuilder
from tensorfold.contracts.chat import ChatTemplates
from tensorfold.errors import ContextLengthExceeded, Rejected
from tensorfold.http import Application, create_app
from tensorfold.ir import Chat, Prompt, Score, Scored, Text
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scoring import ScoringEngine, WordTokenizer
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold.testing.serving import served
from tensorfold_dialect_decisions import decisions_dialect

TEMPLATE = "{% for message in messages %}<|user|>{{ message.content }}{% endfor %}<|bot|>{{ mood or '' }}"
WORDS = ["yes", "no", "Yes", " yes", " NO", "NOT", " A", "\tA", " B", "YES ", "A."]
TOKENIZER = WordTokenizer(WORDS, ["<|user|>", "<|bot|>"])
PROMPTS = PromptBuilder(TOKENIZER, ChatTemplates(TEMPLATE), PlainFormat(), vocabulary=TOKENIZER.size)

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


@pytest.fixture
def engine() -> ScoringEngine:
    return ScoringEngine(MODEL, PROMPTS, odds)


@pytest.fixture
def app(engine: ScoringEngine) -> Iterator[Application]:
    app = create_app(engine=engine, model=MODEL, dialects=[decisions_dialect()], tokenizer=TOKENIZER)
    yield app
    app.close()


def answered(app: Application, path: str, body: object, status: int = 200) -> dict[str, Any]:
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


# ---- SGLang's shape ----


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


@pytest.mark.requirement("T-047", "T-075", "T-077", "T-078", "T-079", "T-080", "T-081")
def test_answers_by_id(app: Application) -> None:
    """One token a label, softmax over labels, `label_mass` over the vocabulary, and no completion tokens."""
    told = answered(app, "/v1/decisions", KEYED)
    assert (told["object"], told["model"], told["prompt_format_version"]) == ("decisions", MODEL.id, 1)
    answers = told["answers"]
    assert list(answers) == ["topic", "anger", "spam"]
    assert answers["topic"]["choice"] == "billing"
    assert answers["topic"]["probabilities"] == pytest.approx({"billing": 2 / 3, "other": 1 / 3})
    assert answers["topic"]["label_mass"] == pytest.approx(0.15)
    assert answers["anger"]["probabilities"] == pytest.approx({"0": 0.6, "1": 0.3, "2": 0.1})
    assert answers["anger"]["score"] == pytest.approx(0.5)
    assert answers["spam"]["probabilities"] == pytest.approx({"yes": 0.1 / 0.12, "no": 0.02 / 0.12})
    assert "choice" not in answers["spam"]
    usage = told["usage"]
    assert usage["completion_tokens"] == 0
    assert usage["prompt_tokens"] == usage["total_tokens"] > 0


@pytest.mark.requirement("T-080", "T-081")
def test_temperature_flattens_the_probabilities_alone(app: Application) -> None:
    """`probabilities` are divided by `temperature`; `label_mass` is not."""
    told = answered(app, "/v1/decisions", {**KEYED, "temperature": 2})["answers"]["topic"]
    one, other = math.sqrt(0.1), math.sqrt(0.05)
    assert told["probabilities"] == pytest.approx({"billing": one / (one + other), "other": other / (one + other)})
    assert told["label_mass"] == pytest.approx(0.15)


@pytest.mark.requirement("T-080")
@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-9])
def test_the_smallest_temperatures_leave_the_likeliest_label(app: Application, temperature: float) -> None:
    """A log-probability divided by the smallest temperatures is no finite number, and still gives probabilities."""
    told = answered(app, "/v1/decisions", {**KEYED, "temperature": temperature})["answers"]["topic"]
    assert told["probabilities"] == {"billing": 1.0, "other": 0.0}


def test_token_ids_are_shown_when_asked_for(app: Application, engine: ScoringEngine) -> None:
    told = answered(app, "/v1/decisions", {**KEYED, "return_prompt_token_ids": True})["answers"]["topic"]
    assert told["prompt_token_ids"] == list(PROMPTS.prepare(engine.scored[0]).ids)
    assert told["label_token_ids"] == tokens("A", "B")


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


@pytest.mark.requirement("T-083", "T-084")
def test_template_switches_of_decisions(app: Application) -> None:
    """Absent, null, empty, or thinking off; anything else is a 400."""
    given: object
    for given in (None, {}, {"enable_thinking": False}):
        answered(app, "/v1/decisions", {**KEYED, "chat_template_kwargs": given})
    for given in ({"enable_thinking": True}, {"enable_thinking": 0}, {"mood": "x"}, [], "x"):
        told = answered(app, "/v1/decisions", {**KEYED, "chat_template_kwargs": given}, status=400)
        assert told["error"]["param"] == "chat_template_kwargs"


# ---- OpenAI's shape ----


@pytest.mark.requirement("Y-055", "Y-073", "Y-075", "Y-082")
def test_answers_in_order(app: Application, engine: ScoringEngine) -> None:
    """`predicate`, `choice` and `score` in OpenAI's shape; usage counts one token a question."""
    told = answered(app, "/v1/decisions", ORDERED)
    assert told.keys() == {"model", "answers", "usage"}
    choice, score, predicate = told["answers"]
    assert (choice["name"], choice["choice"]) == ("c", "billing")
    assert [each["value"] for each in choice["probabilities"]] == ["billing", True]
    assert (score["name"], score["score"]) == (None, pytest.approx(1 / 3))
    assert [(each["value"], each["label"]) for each in score["probabilities"]] == [(0, "calm"), (1, "angry")]
    assert predicate.keys() == {"type", "name", "probability"}
    assert told["usage"]["output_tokens"] == 3
    assert told["usage"]["input_tokens_details"] == {"cached_tokens": 9, "cache_write_tokens": 0}
    assert asked(engine) == [
        (
            "I was charged twice.\n\nQuestion: What is it about?\nA: billing - money\nB: true\n"
            "Answer with the letter of one option only."
        ),
        (
            "I was charged twice.\n\nQuestion: How angry?\n0: calm\n1: angry - loud\n"
            "Answer with the number of one level only."
        ),
        "I was charged twice.\n\nQuestion: It is spam.\nyes: true\nno: false\nAnswer with yes or no only.",
    ]


@pytest.mark.requirement("Y-076", "Y-077", "Y-078", "Y-079", "Y-063", "Y-064", "Y-065")
def test_every_spelling_of_a_label_counts(app: Application) -> None:
    """Blanks before it, and for yes and no capitals; confidence is the winner's share of the whole vocabulary."""
    choice, score, predicate = answered(app, "/v1/decisions", ORDERED)["answers"]
    assert [each["probability"] for each in choice["probabilities"]] == pytest.approx([0.8, 0.2])
    assert choice["confidence"] == pytest.approx(0.4)
    assert score["confidence"] == pytest.approx(0.06)
    assert predicate["probability"] == pytest.approx(0.25 / 0.28)
    assert sum(each["probability"] for each in choice["probabilities"]) == pytest.approx(1, abs=1e-6)


@pytest.mark.requirement("Y-056", "Y-060", "Y-066")
def test_input_is_a_text_or_messages_of_the_user(app: Application, engine: ScoringEngine) -> None:
    """One string, or user messages with text alone; `model` is optional."""
    items = [
        {"role": "user", "content": "one"},
        {"role": "user", "type": "message", "content": [{"type": "input_text", "text": "two"}]},
    ]
    answered(app, "/v1/decisions", {"input": items, "questions": [O_PREDICATE]})
    assert asked(engine)[0].startswith("one\ntwo\n\nQuestion: ")


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


def test_labels_that_begin_alike_are_told_apart(app: Application) -> None:
    question = {"type": "choice", "name": "q", "instructions": "When?", "choices": ["today", "today late", "tomorrow"]}
    (answer,) = answered(app, "/v1/decisions", {"model": "m", "input": "It came today.", "questions": [question]})[
        "answers"
    ]
    assert [each["value"] for each in answer["probabilities"]] == ["today", "today late", "tomorrow"]
    assert sum(each["probability"] for each in answer["probabilities"]) == pytest.approx(1, abs=1e-6)


# ---- System One ----


@pytest.mark.requirement("Y-068", "Y-069", "Y-070", "Y-072", "Y-074")
def test_system_one(app: Application, engine: ScoringEngine) -> None:
    """Named questions about a state; `diagnostics` tell how far a label was meant at all."""
    told = answered(app, "/v1/systemone", SYSTEM_ONE)
    assert list(told["answers"]) == ["topic", "anger", "spam"]
    topic, anger, spam = told["answers"].values()
    assert topic == {
        "type": "choice",
        "choice": "billing",
        "confidence": pytest.approx(0.4),
        "probabilities": {"billing": pytest.approx(0.8), "other": pytest.approx(0.2)},
    }
    assert anger["legend"] == {"0": "calm", "1": "angry"}
    assert anger["probabilities"] == {"0": pytest.approx(2 / 3), "1": pytest.approx(1 / 3)}
    assert spam == {"type": "noul", "noul": pytest.approx(0.25 / 0.28)}
    assert told["diagnostics"]["topic"] == {"label_mass": pytest.approx(0.5), "argmax_is_label": True}
    assert told["diagnostics"]["spam"]["label_mass"] == pytest.approx(0.28)
    assert told["usage"]["output_tokens"] == 3
    assert asked(engine)[2] == (
        '{"subject":"Charge","n":2}\n\nQuestion: Spam?\nyes: an advertisement\nno: false\nAnswer with yes or no only.'
    )


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


# ---- both ----


@pytest.mark.requirement("Y-080", "Y-081")
def test_the_questions_of_a_request_run_at_once_and_begin_alike(app: Application, engine: ScoringEngine) -> None:
    """Every question is scored before the first is answered, and the input stands before what differs."""
    import asyncio

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


def keyed(**fields: Any) -> dict[str, Any]:
    return {**KEYED, **fields}


def ordered(**fields: Any) -> dict[str, Any]:
    return {**ORDERED, **fields}


def one(base: dict[str, Any], /, **fields: Any) -> dict[str, Any]:
    return {"input": "x", "questions": [{**base, **fields}]}


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


def test_true_and_its_spelling_are_two_values(app: Application) -> None:
    (answer,) = answered(app, "/v1/decisions", one(O_CHOICE, choices=[{"value": "true"}, {"value": True}]))["answers"]
    assert [each["value"] for each in answer["probabilities"]] == ["true", True]


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


# ---- the real clients ----


@pytest.fixture
def url(app: Application) -> Iterator[str]:
    with served(app) as url:
        yield url


@pytest.mark.requirement("Y-055")
def test_the_openai_sdk(url: str) -> None:
    """`client.decisions.create`, strictly validated."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="x", _strict_response_validation=True, max_retries=0) as sdk:
        questions: Any = ORDERED["questions"]
        told = sdk.decisions.create(model="gpt-6-luna", input="I was charged twice.", questions=questions)
        assert [answer.type for answer in told.answers] == ["choice", "score", "predicate"]
        with pytest.raises(openai.BadRequestError) as refused:
            sdk.decisions.create(model="m", input="", questions=questions)
    assert refused.value.param == "input"


@pytest.mark.requirement("Y-068", "Y-070")
def test_the_typesafe_sdk(url: str) -> None:
    """System One as its own SDK asks and reads it."""
    with typesafe_sdk.TypeSafeClient(api_key="x", base_url=url, model="m") as sdk:
        questions: Any = SYSTEM_ONE["questions"]
        told = sdk.system_one(state=SYSTEM_ONE["state"], questions=questions)
        assert [model.name for model in sdk.models.list().models] == ["acme/quokka", "quokka"]
    assert told.model == MODEL.id
    assert told.usage.output_tokens == 3
    assert set(told.answers) == {"topic", "anger", "spam"}
