"""A request's sampling after the defaults."""

from __future__ import annotations

import pytest

from tensorfold.contracts.family import SamplingDefaults
from tensorfold.contracts.sampling import SamplingRule
from tensorfold.engine.rules import sampling_rule
from tensorfold.ir import Sampling

CHECKPOINT = SamplingDefaults(temperature=0.6, top_p=0.95, top_k=20, repetition_penalty=1.1)


@pytest.mark.requirement("T-092", "T-128")
def test_the_request_goes_before_the_server_and_the_server_before_the_checkpoint() -> None:
    """A value of the request overrides; a missing one keeps the server's default, then the checkpoint's."""
    rule = sampling_rule(Sampling(temperature=0.2, top_k=5), Sampling(temperature=0.9, top_p=0.5), CHECKPOINT)
    assert rule == SamplingRule(temperature=0.2, top_k=5, top_p=0.5, repetition_penalty=1.1)


def test_without_any_default_the_reply_is_greedy_and_every_filter_is_off() -> None:
    """Nobody asked for sampling: the likeliest token, out of the whole vocabulary."""
    assert sampling_rule(Sampling(), Sampling(), SamplingDefaults()) == SamplingRule(temperature=0.0)


@pytest.mark.requirement("T-093")
def test_zero_is_a_value_and_not_a_missing_one() -> None:
    """`temperature: 0` stays greedy whatever the defaults are."""
    assert sampling_rule(Sampling(temperature=0.0), Sampling(), CHECKPOINT).temperature == 0


@pytest.mark.requirement("T-093")
@pytest.mark.parametrize(("asked", "taken"), [(5e-324, 0.0), (1e-310, 0.0), (1e-9, 1e-9), (100.0, 100.0)])
def test_temperatures_that_no_logit_can_be_divided_by_are_greedy(asked: float, taken: float) -> None:
    """Temperatures by which no logit can be divided are greedy, which they come to."""
    assert sampling_rule(Sampling(temperature=asked), Sampling(), CHECKPOINT).temperature == taken


@pytest.mark.requirement("T-127")
@pytest.mark.parametrize("top_k", [0, -1, -100])
def test_top_k_of_zero_or_less_is_off(top_k: int) -> None:
    """It also turns off what the checkpoint recommends."""
    assert sampling_rule(Sampling(top_k=top_k), Sampling(), CHECKPOINT).top_k == 0
