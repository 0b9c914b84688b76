"""The default scheduling policy."""

from __future__ import annotations

import pytest

from tensorfold.contracts.policy import Load, Running, Waiting
from tensorfold.engine.policies import BACKGROUND_PASSES, PASSES, DefaultPolicy
from tensorfold.errors import Rejected
from tensorfold.ir import Request, TextPrompt

POLICY = DefaultPolicy(queue=3)


def waiting(id: str, left: int, *, passed: int = 0, background: bool = False, arrived: float = 0.0) -> Waiting:
    return Waiting(id, "background" if background else "foreground", arrived, left, passed, started=False)


def order(*entries: Waiting) -> str:
    return "".join(each.id for each in POLICY.order(entries))


def test_the_prompt_with_the_fewest_tokens_left_goes_first_then_the_older_one() -> None:
    """Short prompts do not wait behind long ones."""
    assert order(waiting("a", 900), waiting("b", 20, arrived=2.0), waiting("c", 20, arrived=1.0)) == "cba"


def test_foreground_goes_before_background() -> None:
    """However short the background prompt is."""
    assert order(waiting("a", 1, background=True), waiting("b", 900)) == "ba"


def test_a_prompt_that_was_passed_over_eight_times_goes_next() -> None:
    """A long prompt among short ones is not starved."""
    assert order(waiting("a", 900, passed=PASSES - 1), waiting("b", 20)) == "ba"
    assert order(waiting("a", 900, passed=PASSES), waiting("b", 20)) == "ab"


def test_background_waits_long_but_not_for_ever() -> None:
    """It is passed over more often than a foreground prompt, with an end."""
    assert order(waiting("a", 9, passed=PASSES, background=True), waiting("b", 20)) == "ba"
    assert order(waiting("a", 9, passed=BACKGROUND_PASSES, background=True), waiting("b", 20)) == "ab"


def test_a_full_queue_is_a_503_with_a_time_to_wait() -> None:
    """The bound counts requests beyond those that the lanes can run."""
    request = Request(id="r", prompt=TextPrompt("x"))
    POLICY.admit(request, Load(running=2, waiting=2, lanes=2, free_tokens=0))
    with pytest.raises(Rejected) as caught:
        POLICY.admit(request, Load(running=2, waiting=3, lanes=2, free_tokens=0))
    assert caught.value.status == 503
    assert caught.value.retry_after is not None and 1 <= caught.value.retry_after <= 60


def test_background_yields_to_foreground_and_the_newest_to_the_older_ones() -> None:
    """A foreground prompt takes a background reply's place; short memory costs the newest reply."""
    old = Running("old", "foreground", 1.0, 10)
    new = Running("new", "foreground", 2.0, 10)
    back = Running("back", "background", 1.5, 10)
    assert POLICY.victim([old, new], None) == new
    assert POLICY.victim([old, new, back], None) == back
    assert POLICY.victim([old, new], waiting("w", 5)) is None
    assert POLICY.victim([old, back, new], waiting("w", 5)) == back
    assert POLICY.victim([back], waiting("w", 5, background=True)) is None
    assert POLICY.victim([], None) is None
