"""How long a reply may become."""

from __future__ import annotations

import re

import pytest

from tensorfold.engine.limits import ReplyLimit, reply_limit
from tensorfold.errors import ContextLengthExceeded
from tensorfold.ir import Limits


def limit(limits: Limits, prompt: int, *, window: int = 100, default: int = 50) -> ReplyLimit:
    return reply_limit(limits, prompt=prompt, window=window, default=default, param="messages")


@pytest.mark.requirement("T-246")
def test_prompt_and_reply_may_fill_the_window_to_the_last_token() -> None:
    """A prompt and an explicit limit that fit exactly are served, and end by that limit."""
    assert limit(Limits(max_tokens=40), 60) == ReplyLimit(40, "length")


@pytest.mark.requirement("T-247", "T-249", "T-251", "T-252", "T-253", "T-255")
def test_an_explicit_limit_past_the_window_is_refused_with_what_fits() -> None:
    """Never cut in silence, and alike for all families: code, the prompt's field, the counts, and both ways out."""
    with pytest.raises(ContextLengthExceeded) as caught:
        limit(Limits(max_tokens=41), 60)
    error = caught.value
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")
    assert error.message.startswith("This server's maximum context length is 100 tokens")
    assert re.findall(r"\d+", error.message) == ["100", "101", "60", "41", "40", "59"]


def test_a_limit_longer_than_the_window_is_not_told_to_shorten_the_prompt() -> None:
    """No prompt is short enough for it, so only the reply's limit is named."""
    with pytest.raises(ContextLengthExceeded, match=r"Reduce the reply to at most 40 tokens\.$"):
        limit(Limits(max_tokens=100), 60)


@pytest.mark.requirement("T-250")
@pytest.mark.parametrize("prompt", [100, 101, 5000])
@pytest.mark.parametrize("limits", [Limits(), Limits(max_tokens=1), Limits(max_tokens=1, overflow="cut")])
def test_a_prompt_that_fills_the_window_is_refused(prompt: int, limits: Limits) -> None:
    """No reply would fit, so it meets the same refusal, whatever limit is asked for."""
    with pytest.raises(ContextLengthExceeded, match="maximum context length is 100 tokens, and the prompt has"):
        limit(limits, prompt)


@pytest.mark.requirement("T-256")
def test_the_default_limit_is_cut_to_the_room_left() -> None:
    """Without a limit in the request the reply ends at the default, or when the window is full."""
    assert limit(Limits(), 40) == ReplyLimit(50, "length")
    assert limit(Limits(), 60) == ReplyLimit(40, "window")


@pytest.mark.requirement("T-091")
def test_an_explicit_limit_is_cut_where_the_api_asks_for_that() -> None:
    """Messages cuts its required limit to the room left, and the reply says that the window ended it."""
    assert limit(Limits(max_tokens=41, overflow="cut"), 60) == ReplyLimit(40, "window")
    assert limit(Limits(max_tokens=40, overflow="cut"), 60) == ReplyLimit(40, "length")


def test_a_least_length_beyond_the_default_limit_raises_it() -> None:
    """`min_tokens` alone asks for a reply that long."""
    assert limit(Limits(min_tokens=55), 40) == ReplyLimit(55, "length")
