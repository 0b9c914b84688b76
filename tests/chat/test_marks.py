"""Marks: the template's control tokens, told apart from a caller's text that spells the same."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tensorfold.chat.marks import ControlMarks

CONTROLS = {"<|a|>": 1, "<|a|><|b|>": 2, "[B]": 3, "": 4}

texts = st.text(alphabet="<|a>b[B]0129 \n")


def test_marked_texts_are_pieces_and_unmarked_ones_stay_text() -> None:
    marks = ControlMarks(CONTROLS)
    rendered = marks.mark("x<|a|>") + "user <|a|> text" + marks.mark("[B]")
    assert marks.pieces(rendered) == ("x", 1, "user <|a|> text", 3)
    assert marks.reveal(rendered) == "x<|a|>user <|a|> text[B]"


def test_the_longest_control_token_is_meant() -> None:
    marks = ControlMarks(CONTROLS)
    assert marks.pieces(marks.mark("<|a|><|b|><|a|>")) == (2, 1)


def test_marks_of_two_templates_differ() -> None:
    first, second = ControlMarks(CONTROLS), ControlMarks(CONTROLS)
    assert second.pieces(first.mark("<|a|>")) != (1,)


def test_filters_leave_marks_as_they_are() -> None:
    marks = ControlMarks(CONTROLS)
    marked = marks.mark("<|a|>")
    assert marked.upper() == marked.lower() == marked.title() == marked.strip() == marked


@given(own=texts, callers=texts)
def test_only_the_templates_own_text_makes_control_tokens(own: str, callers: str) -> None:
    marks = ControlMarks(CONTROLS)
    pieces = marks.pieces(marks.mark(own) + callers)
    assert marks.spell(pieces) == own + callers
    assert [piece for piece in pieces if isinstance(piece, int)] == [
        piece for piece in marks.pieces(marks.mark(own)) if isinstance(piece, int)
    ]
    assert not any(isinstance(a, str) and isinstance(b, str) for a, b in pairwise(pieces))


@given(text=texts)
def test_guarded_text_makes_no_control_token_that_the_template_puts_together(text: str) -> None:
    marks = ControlMarks(CONTROLS).accepting({"<|a|>"})
    guarded = marks.guard([{"k" + text: [text, 1, None, True]}])
    assert isinstance(guarded, list)
    assert isinstance(guarded[0], dict)
    ((key, value),) = guarded[0].items()
    assert isinstance(value, list)
    assert value[1:] == [1, None, True]
    for part, expected in ((key, "k" + text), (value[0], text)):
        pieces = marks.pieces(str(part))
        assert marks.spell(pieces) == expected
        assert all(isinstance(piece, str) for piece in pieces)
    assert marks.pieces("<|a|>") == (1,)
