"""The format without markup."""

from __future__ import annotations

from tensorfold.chat.plain import PlainFormat
from tensorfold.contracts.chat import ChatFormat, TextPiece
from tensorfold.ir import Chat, Message, Request, Text, TextPrompt, TokenInfo


def test_text_is_handed_on_as_it_comes() -> None:
    format: ChatFormat = PlainFormat()
    parser = format.parser(Request(id="r", prompt=TextPrompt("x")), "<think>\n")
    token = TokenInfo(1, b"<thi", None)
    assert parser.feed("<thi", (token,)) == (TextPiece("<thi", (token,)),)
    assert parser.feed("nk>", ()) == (TextPiece("nk>"),)
    assert not parser.feed("", ())
    assert not parser.finish()
    assert not parser.thinking


def test_a_request_can_overrule_its_effort() -> None:
    messages = (Message("user", (Text("x"),)),)
    format = PlainFormat()
    assert format.template_kwargs(Chat(messages)) == {}
    asked = Chat(messages, reasoning_effort="low", template_kwargs={"a": 1})
    assert format.template_kwargs(asked) == {"reasoning_effort": "low", "a": 1}
