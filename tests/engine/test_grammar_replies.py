"""Bound replies: what is allowed and when, drafted, serial and beside others alike."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.chat.formats import GemmaFormat, QwenFormat
from tensorfold.chat.plain import PlainFormat
from tensorfold.engine.grammar import Matcher
from tensorfold.engine.grammars import Grammars
from tensorfold.errors import GenerationFailed, RequestError, Unsupported
from tensorfold.ir import Choice, Grammar, JsonObject, JsonSchema, Limits, Regex, Request, Sampling, TextPrompt, fold
from tensorfold.testing.golden import TOOLS
from tensorfold.testing.toy_chat import Guesses, ToyChat, chat_request, spelled
from tensorfold.testing.toy_tokenizer import ToyTokenizer

SCHEMA = JsonSchema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
        },
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
GOOD = '{"name": "Ann", "age": 41}'
OPEN = "assistant:<think>\n"
LIMITS = Limits(max_tokens=120)


@pytest.fixture(autouse=True)
def _library(request: pytest.FixtureRequest) -> None:
    if "without_library" not in request.node.name:
        pytest.importorskip("xgrammar", reason="structured output needs the extra `grammar`")


def bound(grammar: Grammar = SCHEMA, **fields: Any) -> Request:
    return chat_request(grammar=grammar, **{"limits": LIMITS, **fields})


@pytest.mark.requirement("T-202", "T-204", "T-205", "T-206")
@pytest.mark.parametrize(
    "said",
    [GOOD, "Sure! " + GOOD, GOOD.replace("41", "410"), '{"name": "Annabella Maria", "age": 4}', "no", ""],
)
@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(temperature=0.9, seed=7)])
def test_a_bound_reply_is_the_same_however_it_is_computed(said: str, sampling: Sampling) -> None:
    """Drafts are cut to what the grammar allows, and each row is masked behind its own path."""
    (choice,) = ToyChat(format=PlainFormat()).answer(said, bound(sampling=sampling)).choices
    assert choice.reason in ("end", "length")
    if choice.reason == "end":
        value = json.loads(choice.text)
        assert list(value) == ["name", "age"]
        assert len(value["name"]) <= 8
        assert 0 <= value["age"] <= 120
    if said == GOOD:
        assert choice.text == GOOD


def test_tokens_of_several_characters_are_masked_as_a_whole() -> None:
    """A token that begins well and goes wrong is no more allowed than one that begins wrong."""
    words = ToyTokenizer(words=('{"', 'name": ', '"age": ', '", ', '"}', "}}", ' "A', "41}", "41}x", '{"name": "'))
    chat = ToyChat(format=PlainFormat(), tokenizer=words)
    for said in (GOOD, '{"name": "A", "age": 41}x', '{"name": }}'):
        (choice,) = chat.answer(said, bound()).choices
        assert choice.text.startswith('{"name": ')
        assert choice.reason == "length" or json.loads(choice.text)["age"] <= 120


@pytest.mark.requirement("T-210", "T-211")
def test_a_reply_ends_when_it_is_complete_and_is_cut_before_that() -> None:
    """The end token is allowed only then; a reply that is cut is reported as cut."""
    chat = ToyChat(format=PlainFormat())
    whole = len(spelled(chat.tokenizer, GOOD))
    for most in range(1, whole + 2, 5):
        (choice,) = chat.answer(GOOD, bound(limits=Limits(max_tokens=most))).choices
        assert choice.reason == ("end" if most > whole else "length")
        assert GOOD.startswith(choice.text)


@pytest.mark.requirement("T-208")
def test_the_grammar_begins_behind_the_reasoning() -> None:
    """While thinking nothing is held; behind the end mark everything is."""
    chat = ToyChat(format=QwenFormat(), tail=OPEN)
    for said in (f"17 - 6 {{ is\n</think>{GOOD}", f"17\n</think>\n\n{GOOD}", "17\n</think>\n\nIt is 11."):
        (choice,) = chat.answer(said, bound()).choices
        assert choice.thinking.startswith("17")
        assert choice.text.startswith("{")
    (choice,) = chat.answer(f"17 - 6 {{ is\n</think>{GOOD}", bound()).choices
    assert (choice.thinking, json.loads(choice.text)) == ("17 - 6 { is", json.loads(GOOD))


def test_a_token_that_closes_the_reasoning_and_goes_on_is_cut_to_the_mark() -> None:
    """The grammar holds from the very next character on."""
    words = ToyTokenizer(words=("</think>\n\n", ">Hello", "</think", ">\n"))
    chat = ToyChat(format=QwenFormat(), tail=OPEN, tokenizer=words)
    for said in ("hm</think>\n\n", "hm</think>Hello", "hm</think>\n"):
        (choice,) = chat.answer(said + GOOD, bound()).choices
        assert (choice.thinking, choice.text[:1]) == ("hm", "{")


def test_a_model_that_opens_its_reasoning_itself_may_do_so_first() -> None:
    """Where it is to think; else the grammar holds from the first token on."""
    controls = ("<end>", "<|channel>", "<channel|>", "<|tool_call>")
    said = f"<|channel>thought\nhm\n<channel|>{GOOD}"
    for thinking, thought in ((True, "hm"), (False, ""), (None, "")):
        chat = ToyChat(format=GemmaFormat(), tokenizer=ToyTokenizer(control=controls), thinking=thinking)
        (choice,) = chat.answer(said, bound()).choices
        assert (choice.thinking, choice.text[:1]) == (thought, "{")
    qwen = ToyChat(format=QwenFormat())
    (choice,) = qwen.answer(f"<think>hm</think>{GOOD}", bound()).choices
    assert (choice.thinking, choice.text) == ("hm", GOOD)
    (choice,) = qwen.answer("<html>", bound(Regex("<h[a-z]+>"))).choices
    assert (choice.thinking, choice.text) == ("", "<html>")


@pytest.mark.requirement("T-209")
def test_the_budgets_close_ends_at_the_mark() -> None:
    """No blank line behind it: the grammar begins there."""
    chat = ToyChat(format=QwenFormat(), tail=OPEN)
    limits = Limits(max_tokens=60, thinking_budget=5)
    answer = chat.answer("for ever and ever", bound(limits=limits))
    assert answer.choices[0].thinking == "for"
    assert answer.choices[0].text.startswith("{")
    assert answer.usage.reasoning_tokens == 4 + len("\n</think>")


def test_several_choices_have_matchers_of_their_own() -> None:
    """Forked from one prompt, each is what it would be alone."""
    chat = ToyChat(format=PlainFormat())
    many = fold(chat.events("", bound(choices=3, sampling=Sampling(temperature=1.0, seed=3)), Guesses((1, 2, 3))))
    again = fold(chat.events("", bound(choices=3, sampling=Sampling(temperature=1.0, seed=3), draft=False)))
    assert many.token_sha == again.token_sha
    assert len(set(many.token_sha)) == 3


def test_a_raw_completion_is_bound_from_its_first_token() -> None:
    request = Request(id="r", prompt=TextPrompt("x"), grammar=Choice(("red", "green")), limits=LIMITS)
    (choice,) = fold(ToyChat(format=QwenFormat()).events("blue", request)).choices
    assert (choice.text, choice.reason) in (("red", "end"), ("green", "end"))


def test_tools_that_may_be_called_do_not_loosen_the_form() -> None:
    """The form was asked for; a call would break it."""
    request = chat_request(TOOLS, grammar=SCHEMA, limits=LIMITS)
    (choice,) = ToyChat(format=QwenFormat(), thinking=False).answer("<tool_call>\n", request).choices
    assert (choice.calls, choice.text[:1]) == ((), "{")


# ---- refusals and failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [Limits(ignore_eos=True), Limits(min_tokens=5, max_tokens=9)])
def test_what_contradicts_a_form_is_refused(limits: Limits) -> None:
    """A bound reply ends where its form does."""
    with pytest.raises(RequestError) as caught:
        ToyChat(format=PlainFormat()).events("x", bound(limits=limits))
    assert caught.value.status == 400
    assert caught.value.param in ("ignore_eos", "min_tokens")


@pytest.mark.requirement("T-214")
def test_a_form_that_cannot_be_kept_to_is_refused_before_the_stream_opens() -> None:
    """SO-10: never free text instead."""
    with pytest.raises(Unsupported):
        ToyChat(format=PlainFormat()).events("x", bound(JsonSchema({"type": "string", "pattern": "^(unclosed$"})))


@pytest.mark.requirement("T-203", "T-215")
def test_without_library_a_form_is_refused_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`pip install 'tensorfold[grammar]'`."""
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    with pytest.raises(Unsupported, match=r"pip install 'tensorfold\[grammar\]'") as caught:
        ToyChat(format=PlainFormat()).events("x", bound(JsonObject()))
    assert (caught.value.status, caught.value.param) == (400, "response_format")


@pytest.mark.requirement("T-203")
def test_the_extra_without_library_brings_it() -> None:
    """`tensorfold[grammar]`; xgrammar itself asks for torch."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    assert [each.split(">")[0] for each in project["project"]["optional-dependencies"]["grammar"]] == ["xgrammar"]


class _Failing:
    """A grammar that breaks down behind its third token."""

    def compiled(self, grammar: Grammar) -> _Failing:
        return self

    def matcher(self) -> Matcher:
        return _FailingMatcher()


class _FailingMatcher:
    def __init__(self) -> None:
        self._count = 0

    def accept(self, token: int) -> bool:
        self._count += 1
        return True

    def rollback(self, tokens: int) -> None:
        self._count -= tokens

    def allowed(self) -> NDArray[np.bool_]:
        if self._count == 3:
            raise RuntimeError("the grammar broke down")
        return np.ones(257, dtype=np.bool_)


@pytest.mark.requirement("T-217")
def test_a_grammar_that_fails_while_decoding_fails_its_request() -> None:
    """With a 500, or an error event in a stream that has begun; without_library it is the same."""
    events = ToyChat(format=PlainFormat()).events("abcdef", bound(), grammars=_Failing())
    assert "".join(getattr(event, "text", "") for event in events) == "abc"
    with pytest.raises(GenerationFailed) as caught:
        fold(events)
    assert caught.value.status == 500


@pytest.fixture(scope="module")
def random_grammars() -> Grammars:
    tokenizer = ToyTokenizer()
    return Grammars(tokenizer, tokenizer.size, {256})


def test_replies_of_a_model_that_knows_nothing_keep_to_their_form(random_grammars: Grammars) -> None:
    """Whatever is drawn: 60 seeds over a model whose every token is random."""
    chat = ToyChat(format=PlainFormat())
    schema = JsonSchema(
        {
            "type": "array",
            "items": {
                "anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": -5, "maximum": 5}, {"enum": ["a", "b"]}]
            },
            "maxItems": 4,
        }
    )
    for seed in range(60):
        request = bound(schema, sampling=Sampling(temperature=1.0, seed=seed), limits=Limits(max_tokens=400))
        (choice,) = fold(chat.events("?", request, grammars=random_grammars)).choices
        assert choice.reason == "end"
        value = json.loads(choice.text)
        assert len(value) <= 4
        assert all(each in ("a", "b") or (isinstance(each, bool) or -5 <= each <= 5) for each in value)
