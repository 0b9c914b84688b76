"""Tokens to text: UTF-8 safe, equal to a whole decode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorfold.engine.detokenize import Detokenizer
from tensorfold.testing.toy_tokenizer import ToyTokenizer

TOKENIZER = ToyTokenizer(control=("<end>", "<pad>"))
END, PAD = TOKENIZER.ids("<end>", "<pad>")


def decode(tokens: list[int], spelled: frozenset[int] = frozenset()) -> list[str]:
    """The text that each token completes, and what the end adds."""
    detokenizer = Detokenizer(TOKENIZER, spelled)
    return [*(detokenizer.feed(token) for token in tokens), detokenizer.finish()]


def test_characters_that_come_byte_by_byte_appear_whole() -> None:
    """ST-07: no piece holds a replacement character, and the pieces joined are the text."""
    text = "Hi 👋🏽 ď 漢"
    pieces = decode(list(text.encode()))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces)
    assert pieces[-1] == ""


def test_a_reply_cut_inside_a_character_ends_as_a_whole_decode_does() -> None:
    """ST-07: the begun character becomes one replacement character, as in decoding all bytes at once."""
    data = "ok 漢".encode()[:-1]
    assert decode(list(data))[-1] == "\ufffd"
    assert "".join(decode(list(data))) == data.decode(errors="replace")


@given(st.binary(max_size=24))
def test_any_bytes_decode_as_all_of_them_at_once(data: bytes) -> None:
    """Invalid bytes become replacement characters exactly where a whole decode puts them."""
    assert "".join(decode(list(data))) == data.decode(errors="replace")


@given(st.text(max_size=12))
def test_no_piece_of_valid_text_holds_part_of_a_character(text: str) -> None:
    """A text of valid characters never shows a replacement character on its way."""
    data = text.encode(errors="replace")
    assert all(piece in data.decode() for piece in decode(list(data)))


def test_control_tokens_add_nothing() -> None:
    """A control token in mid-reply does not appear, and does not break a character apart."""
    first, second = "é".encode()
    assert decode([first, PAD, second]) == ["", "", "é", ""]


@pytest.mark.requirement("T-139")
def test_a_control_token_that_is_spelled_adds_its_spelling() -> None:
    """With the model's end tokens turned off, one in mid-reply appears in the text as it is spelled."""
    assert decode([ord("a"), END, PAD, ord("b")], frozenset({END})) == ["a", "<end>", "", "b", ""]
