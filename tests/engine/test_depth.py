"""How many guesses are offered: by what steps cost and by how often guesses are right."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorfold.engine.costs import StepCosts
from tensorfold.engine.depth import EXPLORE, IDLE, Deepest, MeasuredDepth
from tensorfold.engine.drafts import Chances, Odds


def chances(rate: float, count: int) -> tuple[float, ...]:
    return tuple(rate ** (place + 1) for place in range(count))


# ---- costs ------------------------------------------------------------------------------------------------


def test_costs_between_seen_sizes_lie_on_a_line() -> None:
    costs = StepCosts({1: 1.0, 9: 2.0})
    assert [costs.of(rows) for rows in (1, 5, 9)] == [1.0, 1.5, 2.0]
    assert costs.of(17) == pytest.approx(3.0)


def test_before_larger_steps_were_seen_they_are_taken_to_be_cheap() -> None:
    """So that they are tried, and then are known."""
    assert StepCosts({1: 1.0}).of(11) == pytest.approx(1.3)


def test_one_slow_step_does_not_count() -> None:
    costs = StepCosts({4: 1.0})
    for seconds in (1.0, 1.0, 50.0):
        costs.record(4, seconds)
    assert costs.of(4) == 1.0


def test_more_rows_never_cost_less() -> None:
    """Where they seem to, fewer rows were slow by chance."""
    table = StepCosts({1: 1.0, 4: 3.0, 8: 2.0}).table(10)
    assert table == sorted(table) and table[0] == 0
    assert table[4] == table[8] == 2.0
    assert StepCosts({1: 1.0, 4: 3.0, 8: 2.0}).table(4)[4] == 2.0


def test_old_steps_are_forgotten() -> None:
    """Costs grow with the context."""
    costs = StepCosts({1: 1.0})
    for _ in range(9):
        costs.record(1, 2.0)
    assert costs.of(1) == 2.0


# ---- shares -----------------------------------------------------------------------------------------------


def test_nothing_is_guessed_before_a_round_was_measured() -> None:
    assert MeasuredDepth().share([chances(0.9, 5)], 64) == [0]


def test_sure_guesses_in_cheap_rows_are_all_offered() -> None:
    assert MeasuredDepth({1: 1.0, 32: 1.2}).share([chances(1.0, 20)], 64) == [20]


def test_no_guess_is_offered_where_none_pays() -> None:
    """Rows that cost as much as steps of their own, or guesses that are mostly wrong."""
    assert MeasuredDepth({1: 1.0, 2: 2.0, 8: 8.0}).share([chances(0.8, 7)], 64) == [0]
    assert MeasuredDepth({1: 1.0, 8: 1.8}).share([chances(0.05, 7)], 64) == [0]


def test_a_tile_of_rows_is_filled_or_left() -> None:
    """Where 8 rows cost as 2 do, and the ninth as much again, 7 guesses are offered."""
    known = {1: 1.0, **dict.fromkeys(range(2, 9), 1.3), **dict.fromkeys(range(9, 17), 2.6)}
    assert MeasuredDepth(known).share([chances(0.9, 15)], 64) == [7]


def test_the_likelier_reply_gets_more_guesses() -> None:
    shares = MeasuredDepth({1: 1.0, 8: 1.4, 16: 2.4}).share([chances(0.95, 10), chances(0.4, 10)], 16)
    assert shares[0] > shares[1]


def test_a_guess_is_tried_after_idle_rounds() -> None:
    """The text may have become easier."""
    depth = MeasuredDepth({1: 1.0, 8: 8.0})
    given = [depth.share([chances(0.5, 4)], 64)[0] for _ in range(2 * IDLE)]
    assert given == ([0] * (IDLE - 1) + [1]) * 2


@given(
    st.lists(st.floats(0.05, 1.0).flatmap(lambda rate: st.integers(0, 6).map(lambda n: chances(rate, n))), max_size=3),
    st.lists(st.floats(0.01, 1.0), min_size=24, max_size=24),
)
def test_no_other_share_gives_more_tokens_a_second(outlooks: list[tuple[float, ...]], rises: list[float]) -> None:
    """Against all shares there are."""
    if not outlooks:
        return
    costs = dict(enumerate(itertools.accumulate(rises), start=1))
    got = MeasuredDepth(costs).share(outlooks, 24)

    def rate(shares: tuple[int, ...]) -> float:
        tokens = sum(1 + math.fsum(each[:share]) for each, share in zip(outlooks, shares, strict=True))
        return tokens / costs[len(outlooks) + sum(shares)]

    best = max(rate(shares) for shares in itertools.product(*(range(len(each) + 1) for each in outlooks)))
    assert rate(tuple(got)) >= best / 1.02 - 1e-9
    assert all(0 <= share <= len(each) for share, each in zip(got, outlooks, strict=True))


def test_a_step_that_was_slow_by_chance_is_tried_again() -> None:
    """Now and then costs are taken to be as low as they may be, and what is then measured counts."""
    depth = MeasuredDepth({1: 1.0, 2: 9.0, 8: 9.0})
    given = []
    for _ in range(EXPLORE + 1):
        (count,) = depth.share([chances(0.95, 7)], 64)
        given.append(count)
        if count:
            depth.ran(1 + count, 1.2 if count == 7 else 9.0)
    assert given[EXPLORE - 1] == given[EXPLORE] == 7
    assert max(given[: EXPLORE - 1]) == 1


def test_the_deepest_offers_what_fits() -> None:
    assert Deepest().share([chances(1.0, 40), chances(1.0, 3)], 32) == [15, 3]
    assert Deepest().share([], 32) == []


# ---- odds -------------------------------------------------------------------------------------------------


def test_odds_begin_as_expected_and_follow_what_is_seen() -> None:
    odds = Odds(0.8)
    assert odds.rate == pytest.approx(0.8)
    for _ in range(30):
        odds.learn(0, 1)
    assert odds.rate < 0.2
    for _ in range(60):
        odds.learn(1, 0)
    assert odds.rate > 0.6


def test_new_replies_begin_with_what_others_saw() -> None:
    all_replies = Chances()
    for _ in range(40):
        all_replies.learn("drafter", 0, 1)
    begun = all_replies.begin()
    assert begun["drafter"].rate < 0.2
    assert begun["head"].rate > 0.6
