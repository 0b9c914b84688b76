"""Tokens on their way to events: characters, stop strings, log-probabilities, the parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorfold.chat.plain import PlainParser
from tensorfold.contracts.chat import ReplyParser
from tensorfold.engine.detokenize import Detokenizer
from tensorfold.engine.reply import ReplyText
from tensorfold.engine.stops import StopScanner
from tensorfold.ir import Event, TextDelta, ThinkingDelta, TokenInfo, ToolCallDelta
from tensorfold.testing.toy_parser import ThinkingParser
from tensorfold.testing.toy_tokenizer import ToyTokenizer

TOKENIZER = ToyTokenizer(words=("Hello", " wor", "ld ST", "OP x"), control=("<end>",))


def info(token: int) -> TokenInfo:
    return TokenInfo(token, TOKENIZER.token_bytes(token), -1.0)


def read(
    tokens: list[int], *, stops: tuple[str, ...] = (), parser: ReplyParser | None = None
) -> tuple[list[Event], ReplyText]:
    """All events of a reply whose every token has a log-probability."""
    reply = ReplyText(0, Detokenizer(TOKENIZER), StopScanner(stops), parser or PlainParser(), lambda n: f"call_{n}")
    events: list[Event] = []
    for token in tokens:
        sent, matched = reply.feed(token, info(token))
        events += sent
        if matched is not None:
            return events + reply.finish(matched=True), reply
    return events + reply.finish(matched=False), reply


def joined(events: list[Event]) -> tuple[str, list[int]]:
    """Text and thinking, and the tokens that came with them."""
    text, tokens = "", list[int]()
    for event in events:
        if isinstance(event, TextDelta | ThinkingDelta):
            text += event.text
            tokens += [token.id for token in event.tokens]
    return text, tokens


@pytest.mark.requirement("T-117")
def test_the_tokens_of_a_split_character_come_with_the_character() -> None:
    """LP-01: four byte tokens of one emoji come together, each with its own bytes, which join to the text."""
    events, _ = read(list("😊".encode()))
    (event,) = events
    assert isinstance(event, TextDelta)
    assert event.text == "😊"
    assert b"".join(token.data for token in event.tokens) == "😊".encode()


def test_tokens_are_held_back_with_their_text() -> None:
    """A token whose text may belong to a stop string is sent when the text is."""
    reply = ReplyText(0, Detokenizer(TOKENIZER), StopScanner(["abc"]), PlainParser(), str)
    sent = [reply.feed(token, info(token))[0] for token in b"abd"]
    assert sent == [[], [], [TextDelta(0, "abd", tuple(map(info, b"abd")))]]


def test_tokens_of_a_matched_stop_string_are_not_shown() -> None:
    """Only tokens that have a part in the visible text carry a log-probability."""
    tokens = list(TOKENIZER.ids("Hello", " wor", "ld ST", "OP x"))
    events, _ = read(tokens, stops=("STOP",))
    assert joined(events) == ("Hello world ", tokens[:3])


def test_control_tokens_are_not_shown() -> None:
    """A token that adds nothing to the text has no log-probability either."""
    (end,) = TOKENIZER.ids("<end>")
    events, _ = read([ord("a"), end, ord("b")])
    assert joined(events) == ("ab", [ord("a"), ord("b")])


@given(st.text(max_size=10), st.lists(st.text("aé<", min_size=1, max_size=3), max_size=2))
def test_every_visible_token_comes_exactly_once_and_in_order(text: str, stops: list[str]) -> None:
    """The tokens sent are the reply's first ones, and their bytes begin with the text's."""
    tokens = list(text.encode(errors="replace"))
    shown, sent = joined(read(tokens, stops=tuple(stops))[0])
    assert sent == tokens[: len(sent)]
    assert bytes(sent).startswith(shown.encode())


@pytest.mark.requirement("T-135")
def test_stop_strings_are_looked_for_in_reasoning_too() -> None:
    """A stop string inside the reasoning ends the reply there."""
    events, _ = read(list(b"plan END more</think>x"), stops=("END",), parser=ThinkingParser(thinking=True))
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "plan "


def test_reasoning_text_and_calls_become_events() -> None:
    """A call's id and name come once, its arguments behind them."""
    events, reply = read(list(b"hm</think>ok<call>{1}</call>"), parser=ThinkingParser(thinking=True))
    assert joined(events)[0] == "hmok"
    calls = [event for event in events if isinstance(event, ToolCallDelta)]
    assert (calls[0].id, calls[0].name) == ("call_0", "f")
    assert all(call.id is None and call.name is None for call in calls[1:])
    assert "".join(call.arguments for call in calls) == "{1}"
    assert reply.calls == 1


def test_reasoning_tokens_are_counted_up_to_the_closing_marker() -> None:
    """The marker's tokens belong to the reasoning, what follows does not."""
    _, reply = read(list(b"abc</think>answer"), parser=ThinkingParser(thinking=True))
    assert reply.reasoning_tokens == len("abc</think>")
