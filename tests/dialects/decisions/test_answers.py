"""What is told of a decision: probabilities of the labels, in the shape of each API."""

from __future__ import annotations

import math

import pytest

from tensorfold.http import Application
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scoring import ScoringEngine

from .bodies import KEYED, O_CHOICE, ORDERED, SYSTEM_ONE, one
from .model import PROMPTS, answered, asked, tokens

# ---- SGLang's shape ----


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


def test_labels_that_begin_alike_are_told_apart(app: Application) -> None:
    question = {"type": "choice", "name": "q", "instructions": "When?", "choices": ["today", "today late", "tomorrow"]}
    (answer,) = answered(app, "/v1/decisions", {"model": "m", "input": "It came today.", "questions": [question]})[
        "answers"
    ]
    assert [each["value"] for each in answer["probabilities"]] == ["today", "today late", "tomorrow"]
    assert sum(each["probability"] for each in answer["probabilities"]) == pytest.approx(1, abs=1e-6)


def test_true_and_its_spelling_are_two_values(app: Application) -> None:
    (answer,) = answered(app, "/v1/decisions", one(O_CHOICE, choices=[{"value": "true"}, {"value": True}]))["answers"]
    assert [each["value"] for each in answer["probabilities"]] == ["true", True]


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
