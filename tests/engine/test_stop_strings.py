"""Stop strings in text that comes in pieces."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from tensorfold.engine.stops import StopScanner


def scan(pieces: list[str], stops: list[str], *, keep: bool = False) -> tuple[str, str | None, int]:
    """The text that left, the stop string that matched, and how many pieces were read."""
    scanner = StopScanner(stops, keep=keep)
    text = ""
    for number, piece in enumerate(pieces, 1):
        result = scanner.feed(piece)
        text += result.text
        if result.matched is not None:
            return text, result.matched, number
    return text + scanner.finish(), None, len(pieces)


def whole(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The rule itself, character by character: the match that ends first, the longest of those that end there."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return text[: end - len(longest)], longest
    return text, None


def test_the_beginning_of_a_stop_string_is_held_back_until_it_is_whole() -> None:
    """ST-01: nothing of a stop string that comes in pieces is sent."""
    assert scan(["QRS", "T", "UV", "W", "X"], ["QRSTUVW"]) == ("", "QRSTUVW", 4)


def test_text_that_only_began_like_a_stop_string_comes_out_whole() -> None:
    """ST-01: what was held back is sent when it turns out to be ordinary text."""
    assert scan(["QRS", "T", "UV", "W", "X"], ["QRSZ"]) == ("QRSTUVWX", None, 5)


def test_text_before_a_stop_string_is_not_lost() -> None:
    """ST-02: the last text before the stop is sent."""
    assert scan(["What", "?", "\n"], ["\n"]) == ("What?", "\n", 3)


def test_text_is_held_back_no_longer_than_it_may_yet_match() -> None:
    """Only the longest end that begins a stop string waits."""
    scanner = StopScanner(["aab"])
    assert scanner.feed("caa").text == "c"
    assert scanner.feed("a").text == "a"
    assert scanner.finish() == "aa"


def test_a_kept_stop_string_stays_and_what_is_behind_it_goes() -> None:
    """`include_stop_str` keeps the matched text alone."""
    assert scan(["one ST", "OP two"], ["STOP"], keep=True) == ("one STOP", "STOP", 2)


ALPHABET = "ab<"
TEXTS = st.text(ALPHABET, max_size=20)
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=5), max_size=4)


@given(text=TEXTS, stops=STOPS, cuts=st.lists(st.integers(0, 20), max_size=8))
@example(text="abcd", stops=["bcd", "c"], cuts=[])
def test_the_result_does_not_depend_on_how_the_text_is_cut(text: str, stops: list[str], cuts: list[int]) -> None:
    """Any pieces give what the rule gives for the whole text."""
    borders = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[first:last] for first, last in pairwise(borders)]
    left, matched, _ = scan(pieces, stops)
    assert (left, matched) == whole(text, stops)


@given(text=TEXTS, stops=STOPS)
def test_the_match_is_known_with_the_character_that_completes_it(text: str, stops: list[str]) -> None:
    """Character by character, the reply ends at the first character at which any stop string is complete."""
    left, matched, read = scan(list(text), stops)
    if matched is not None:
        assert text[:read] == left + matched
        assert not any(stop in text[: read - 1] for stop in stops)
