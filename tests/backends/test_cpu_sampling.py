"""The cpu backend's shortcut to a draw never changes it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.compute.sampling import draw_rows
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.sampling import Draw, SamplingRule
from tensorfold_backend_cpu import CpuBackend
from tensorfold_backend_cpu.session import CpuSession


@pytest.fixture(scope="module")
def session() -> Iterator[CpuSession]:
    """One for all."""
    opened = CpuBackend().open(BackendSettings(threads=2))
    yield opened
    opened.close()


def agree(session: CpuSession, logits: np.ndarray[tuple[int, int], np.dtype[np.float32]], draws: list[Draw]) -> None:
    """The session draws what the shared rule draws."""
    assert session.sample(session.array(logits), draws) == draw_rows(logits, draws)


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    vocabulary=st.integers(1, 5000),
    spread=st.sampled_from([0.0, 0.01, 1.0, 5.0, 40.0]),
    temperature=st.sampled_from([0.001, 0.05, 0.3, 1.0, 1.7, 30.0]),
)
def test_a_draw_without_filters_is_that_of_the_rule(
    session: CpuSession, seed: int, vocabulary: int, spread: float, temperature: float
) -> None:
    """Peaked and flat rows, hot and cold, of every width."""
    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((3, vocabulary)) * spread).astype(np.float32)
    rule = SamplingRule(temperature=temperature)
    draws = [
        Draw(row=row, key=int(rng.integers(0, 2**63)) * 2 + row % 2, position=int(rng.integers(0, 10**6)), rule=rule)
        for row in (0, 1, 2, 1)
    ]
    agree(session, logits, draws)


def test_many_draws_from_a_real_vocabulary_are_those_of_the_rule(session: CpuSession) -> None:
    """Mixed with draws that have no shortcut, in their order."""
    rng = np.random.default_rng(1)
    logits = (rng.standard_normal((4, 49152)) * 2).astype(np.float32)
    logits[2] = np.float32(3.0)
    rules = [SamplingRule(), SamplingRule(temperature=0.6), SamplingRule(temperature=0.0), SamplingRule(top_p=0.9)]
    agree(
        session,
        logits,
        [
            Draw(row=number % 4, key=number, position=number, rule=rules[number % 3 + number // 20])
            for number in range(30)
        ],
    )


def test_equal_values_go_to_the_lower_id(session: CpuSession) -> None:
    """Where every logit is the same, noise decides, and nearly every token is a contender at a high temperature."""
    logits = np.zeros((1, 3000), np.float32)
    agree(session, logits, [Draw(row=0, key=key, position=9, rule=SamplingRule(temperature=1e6)) for key in range(20)])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_row_that_is_not_finite_has_the_rules_answer(session: CpuSession, wrong: float) -> None:
    """A problem is told; a single minus infinity is none."""
    for count in (1, 100):
        logits = np.ones((1, 100), np.float32)
        logits[0, :count] = wrong
        agree(session, logits, [Draw(row=0, key=5, position=1, rule=SamplingRule())])
