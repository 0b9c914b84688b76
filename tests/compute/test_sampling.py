"""The keyed sampling rule against its own words, written the slow way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.compute import sampling
from tensorfold.compute.sampling import draw_row, draw_rows, gumbel_noise
from tensorfold.contracts.sampling import Draw, SamplingRule

VOCABULARY = 300


def literal(row: np.ndarray, draw: Draw) -> int:
    """The rule read aloud: a whole sort, Python integers for the mass, one candidate at a time."""
    rule = draw.rule
    scores = [float(value) for value in row]
    for token in range(len(scores)):
        if draw.allowed is not None and not draw.allowed[token]:
            scores[token] = -math.inf
    for token, bias in rule.logit_bias:
        scores[token] += bias
    if rule.penalizes:
        for token, count in draw.counts.items():
            value = scores[token]
            if rule.repetition_penalty != 1.0:
                value = value / rule.repetition_penalty if value > 0 else value * rule.repetition_penalty
            scores[token] = value - rule.frequency_penalty * count - rule.presence_penalty
    order = sorted((token for token, value in enumerate(scores) if value != -math.inf), key=lambda t: (-scores[t], t))
    if rule.temperature == 0:
        return order[0]
    if rule.top_k > 0:
        order = order[: rule.top_k]
    scaled = [np.float64(scores[token]) / rule.temperature for token in order]
    if rule.top_p < 1:
        mass = [int(np.floor(np.exp(value - scaled[0]) * 2.0**40)) for value in scaled]
        threshold = int(rule.top_p * sum(mass))
        total, kept = 0, 0
        for each in mass:
            total, kept = total + each, kept + 1
            if total >= threshold:
                break
        order, scaled = order[:kept], scaled[:kept]
    if rule.min_p > 0:
        kept_pairs = [(t, v) for t, v in zip(order, scaled, strict=True) if np.exp(v - scaled[0]) >= rule.min_p]
        order, scaled = [t for t, _ in kept_pairs], [v for _, v in kept_pairs]
    noise = gumbel_noise(draw.key, draw.position, np.array(order))
    best = max(range(len(order)), key=lambda i: (scaled[i] + noise[i], -order[i]))
    return order[best]


rules = st.builds(
    SamplingRule,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999, 1.0]),
    top_k=st.sampled_from([0, 1, 3, 20, 1000]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    presence_penalty=st.sampled_from([0.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.4]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    logit_bias=st.sampled_from([(), ((5, 3.0),), ((0, -100.0), (7, 100.0))]),
)


@settings(max_examples=300)
@given(
    rule=rules,
    seed=st.integers(0, 2**32),
    key=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**31),
    grain=st.sampled_from([0.0, 0.5, 4.0]),
    masked=st.booleans(),
)
@pytest.mark.requirement("T-092", "T-131", "T-132")
def test_every_draw_is_what_the_rule_says_read_word_by_word(
    rule: SamplingRule, seed: int, key: int, position: int, grain: float, masked: bool
) -> None:
    """Bias, penalties, top-k, temperature, top-p, min-p and noise apply in the stated order, min-p last."""
    generator = np.random.default_rng(seed)
    row = generator.standard_normal(VOCABULARY).astype(np.float32) * 3
    if grain:  # many equal logits, for the ties
        row = np.round(row / grain).astype(np.float32) * np.float32(grain)
    draw = Draw(
        row=0,
        key=key,
        position=position,
        rule=rule,
        allowed=generator.random(VOCABULARY) < 0.5 if masked else None,
        counts={3: 2, 5: 1, 250: 7},
    )
    assert draw_row(row, draw).token == literal(row, draw)


@pytest.mark.requirement("T-129")
def test_a_nucleus_wider_than_the_shortlist_falls_back_to_the_whole_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """With top-k off, a flat row whose nucleus runs past the shortlist draws as a sort of the whole row would."""
    row = np.random.default_rng(1).standard_normal(5000).astype(np.float32) * np.float32(0.01)
    rule = SamplingRule(top_p=0.95)
    draws = [Draw(row=0, key=key, position=9, rule=rule) for key in range(50)]
    short = [each.token for each in draw_rows(row[None], draws)]
    monkeypatch.setattr(sampling, "_SHORTLIST", len(row))
    assert short == [each.token for each in draw_rows(row[None], draws)]
    assert len(set(short)) > 40


@pytest.mark.requirement("T-093")
def test_temperature_zero_takes_the_largest_logit_and_the_lower_id_of_equal_ones() -> None:
    """Greedy is the argmax, whatever the key."""
    row = np.array([0.0, 2.0, 1.0, 2.0], np.float32)
    for key in range(20):
        assert draw_row(row, Draw(row=0, key=key, position=key, rule=SamplingRule(temperature=0))).token == 1


def test_draws_follow_the_distribution() -> None:
    """Ten thousand keys over four tokens come within four standard errors of their probabilities."""
    row = np.log(np.array([0.1, 0.2, 0.3, 0.4])).astype(np.float32)
    tokens = [draw_row(row, Draw(row=0, key=key, position=3, rule=SamplingRule())).token for key in range(10_000)]
    for token, probability in enumerate([0.1, 0.2, 0.3, 0.4]):
        error = math.sqrt(probability * (1 - probability) / 10_000)
        assert abs(tokens.count(token) / 10_000 - probability) < 4 * error


def test_the_noise_of_a_token_does_not_depend_on_which_others_are_asked_for() -> None:
    """A partial selection sees the same noise as the whole row."""
    whole = gumbel_noise(7, 100, np.arange(1000))
    some = np.array([3, 999, 17])
    assert np.array_equal(gumbel_noise(7, 100, some), whole[some])
    assert not np.array_equal(gumbel_noise(8, 100, some), whole[some])
    assert not np.array_equal(gumbel_noise(7, 101, some), whole[some])


def test_the_keyed_draw_is_the_same_in_every_release() -> None:
    """These draws were written down once: a change of the rule changes every seeded reply in the world."""
    row = np.random.default_rng(5).standard_normal(1000).astype(np.float32) * 2
    rules = [SamplingRule(), SamplingRule(top_p=0.8), SamplingRule(top_k=7, temperature=1.5), SamplingRule(min_p=0.2)]
    drawn = [[draw_row(row, Draw(row=0, key=k, position=11, rule=rule)).token for k in range(4)] for rule in rules]
    assert drawn == EXPECTED


EXPECTED = [[871, 639, 803, 91], [871, 639, 803, 91], [871, 639, 803, 816], [871, 639, 803, 58]]


def test_logprobs_are_of_the_raw_row_at_temperature_one() -> None:
    """Mask, bias, penalties and filters change the draw and not the reported probabilities."""
    row = np.random.default_rng(2).standard_normal(50).astype(np.float32)
    allowed = np.zeros(50, bool)
    allowed[13] = True
    draw = Draw(row=0, key=1, position=2, rule=SamplingRule(top_k=1, temperature=2.0), allowed=allowed, logprobs=3)
    drawn = draw_row(row, draw)
    expected = row.astype(np.float64) - np.log(np.exp(row.astype(np.float64)).sum())
    assert drawn.token == 13
    assert drawn.logprob == pytest.approx(expected[13], abs=1e-12)
    assert [each.id for each in drawn.alternatives] == list(np.argsort(-row)[:3])
    assert [each.logprob for each in drawn.alternatives] == pytest.approx(sorted(expected)[::-1][:3], abs=1e-12)


def test_a_forced_token_is_taken_whatever_the_logits_say() -> None:
    """A gate's forced token is not drawn, and its log-probability is still read."""
    row = np.array([5.0, 0.0, -5.0], np.float32)
    drawn = draw_row(row, Draw(row=0, key=0, position=0, rule=SamplingRule(), forced=2, logprobs=0))
    assert drawn.token == 2
    assert drawn.logprob == pytest.approx(-10.0067, abs=1e-3)


@pytest.mark.parametrize(
    "row", [np.array([0.0, np.nan], np.float32), np.array([0.0, np.inf], np.float32), np.full(2, -np.inf, np.float32)]
)
def test_a_row_that_is_not_finite_is_a_problem_and_not_a_token(row: np.ndarray) -> None:
    """NaN, infinity and a wholly masked row are told, for one request to fail and the others to go on."""
    assert draw_row(row, Draw(row=0, key=0, position=0, rule=SamplingRule(temperature=0))).problem is not None


def test_a_mask_that_leaves_nothing_is_a_problem() -> None:
    """A gate's dead end is told."""
    draw = Draw(row=0, key=0, position=0, rule=SamplingRule(), allowed=np.zeros(3, bool))
    assert draw_row(np.zeros(3, np.float32), draw).problem is not None


@given(
    st.lists(st.tuples(rules, st.booleans(), st.sampled_from([None, 0, 2])), min_size=1, max_size=6),
    st.lists(st.sampled_from(["plain", "tied", "nan", "inf", "nothing", "masked"]), min_size=6, max_size=6),
    st.integers(0, 2**32),
    st.booleans(),
)
@settings(max_examples=60)
def test_rows_drawn_together_are_rows_drawn_alone(
    wanted: list[tuple[SamplingRule, bool, int | None]], kinds: list[str], seed: int, backwards: bool
) -> None:
    """Greedy draws share one look at all their rows, and nothing shows of it: not of rows without a number, either."""
    dice = np.random.default_rng(seed)
    logits = dice.normal(size=(6, 40)).astype(np.float32)
    for row, kind in zip(logits, kinds, strict=True):
        match kind:
            case "tied":
                row[dice.integers(0, 40, 5)] = 9.0
            case "nan":
                row[dice.integers(0, 40)] = np.nan
            case "inf":
                row[dice.integers(0, 40)] = np.inf
            case "nothing":
                row[:] = -np.inf
            case "masked":
                row[:39] = -np.inf
            case _:
                pass
    draws = [
        Draw(row, 7, row, rule, forced=3 if forced else None, logprobs=logprobs)
        for row, (rule, forced, logprobs) in enumerate(wanted)
    ]
    draws = draws[::-1] if backwards else draws
    assert draw_rows(logits, draws) == [draw_row(logits[draw.row], draw) for draw in draws]


@pytest.mark.parametrize("kind", [np.nan, np.inf, -np.inf])
def test_a_greedy_row_without_a_largest_number_is_a_problem_together_and_alone(kind: float) -> None:
    bad = np.full(VOCABULARY, kind, np.float32)
    good = np.arange(VOCABULARY, dtype=np.float32)
    draws = [Draw(row, 0, 0, SamplingRule(temperature=0.0)) for row in range(3)]
    first, second, third = draw_rows(np.stack([good, bad, good]), draws)
    assert (first.token, third.token, first.problem) == (VOCABULARY - 1, VOCABULARY - 1, None)
    assert second.problem is not None
    assert draw_row(bad, draws[0]).problem == second.problem
