"""The keyed sampling rule: the one implementation that defines every draw.

In this order: the gates' mask, logit bias, penalties; then candidates sorted by logit (descending, ties to the lower
id); top-k; temperature; top-p; min-p; then the largest of scaled logit + Gumbel noise, ties to the lower id. The noise
is a hash of (key, absolute position, token id), so there is no generator whose state could depend on history.
Temperature 0 is the largest logit, ties to the lower id. Logits enter as float32; everything after is float64.

The sort defines the result, not the algorithm: probability mass is counted in 40-bit fixed point, so that its sums are
exact in any order, and a selection of the largest logits gives what the whole sort would give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.sampling import Draw, Drawn, SamplingRule
from tensorfold.ir import Alternative

__all__ = ["draw_row", "draw_rows", "gumbel_noise"]

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 0xFFFFFFFFFFFFFFFF
_MASS_BITS = 40
NOT_FINITE = Drawn(token=0, problem="the model's logits are not finite")
_SHORTLIST = 1024
"""How many of the largest logits are tried before the whole row is sorted."""

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


def draw_rows(logits: NDArray[np.float32], draws: Sequence[Draw]) -> list[Drawn]:
    """One token for each draw; `logits` is `[N, V]` and `Draw.row` indexes it."""
    plain = [draw.row for draw in draws if _is_plain(draw)]
    if len(plain) < 2:
        return [draw_row(logits[draw.row], draw) for draw in draws]
    drawn = _largest_of(logits, plain)
    if len(plain) == len(draws):
        return drawn
    following = iter(drawn)
    return [next(following) if _is_plain(draw) else draw_row(logits[draw.row], draw) for draw in draws]


def _largest_of(logits: NDArray[np.float32], rows: list[int]) -> list[Drawn]:
    """The largest logit of each row, ties to the lower id.

    PERF: numpy's overhead once for all rows. Where a row holds NaN, that is what it finds; where it holds +inf or
    nothing but -inf, that is the largest.
    """
    picked = logits if rows == [*range(len(logits))] else logits[rows]
    tokens = picked.argmax(axis=1)
    finite = np.isfinite(picked[np.arange(len(rows)), tokens]).tolist()
    return [Drawn(token) if good else NOT_FINITE for token, good in zip(tokens.tolist(), finite, strict=True)]


def draw_row(row: NDArray[np.float32], draw: Draw) -> Drawn:
    """One token from one row `[V]`.

    PERF: a plain greedy draw reads the row once and copies nothing, a tenth of the general way's time.
    """
    if _is_plain(draw):
        token = int(row.argmax())
        # NaN is taken for the largest; so are +inf, and -inf where nothing else is.
        return Drawn(token) if math.isfinite(row[token]) else NOT_FINITE
    finite = bool(np.isfinite(row).all())
    if not finite and (np.isnan(row).any() or np.isposinf(row).any() or np.isneginf(row).all()):
        return NOT_FINITE
    if draw.forced is not None:
        token = draw.forced
    elif draw.allowed is None and _is_plain_greedy(draw.rule):
        token = int(np.argmax(row))
    else:
        scores = _shaped(row.astype(np.float64), draw)
        if (draw.allowed is not None or not finite) and np.isneginf(scores).all():
            return Drawn(token=0, problem="every token is masked at this position")
        token = _choose(scores, draw)
    if draw.logprobs is None:
        return Drawn(token)
    return _with_logprobs(row.astype(np.float64), token, draw.logprobs)


def _is_plain(draw: Draw) -> bool:
    """Whether the largest logit is drawn as it stands, and nothing else is asked for."""
    return draw.logprobs is None and draw.allowed is None and draw.forced is None and _is_plain_greedy(draw.rule)


def _is_plain_greedy(rule: SamplingRule) -> bool:
    """Whether the largest logit is drawn as it stands."""
    return rule.temperature == 0 and not rule.logit_bias and not rule.penalizes


def _shaped(raw: Floats, draw: Draw) -> Floats:
    """Mask, bias and penalties."""
    scores = raw if draw.allowed is None else np.where(draw.allowed, raw, -np.inf)
    rule = draw.rule
    if not (rule.logit_bias or (rule.penalizes and draw.counts)):
        return scores
    scores = scores.copy()
    for token, bias in rule.logit_bias:
        scores[token] += bias
    if rule.penalizes and draw.counts:
        _penalize(scores, draw)
    return scores


def _penalize(scores: Floats, draw: Draw) -> None:
    rule = draw.rule
    ids = np.fromiter(draw.counts.keys(), np.int64, len(draw.counts))
    counts = np.fromiter(draw.counts.values(), np.float64, len(draw.counts))
    seen = scores[ids]
    if rule.repetition_penalty != 1.0:
        seen = np.where(seen > 0, seen / rule.repetition_penalty, seen * rule.repetition_penalty)
    scores[ids] = seen - rule.frequency_penalty * counts - rule.presence_penalty


def _choose(scores: Floats, draw: Draw) -> int:
    rule = draw.rule
    if rule.temperature == 0:
        return int(np.argmax(scores))
    if rule.top_k <= 0 and rule.top_p >= 1 and rule.min_p <= 0:
        noise = gumbel_noise(draw.key, draw.position, np.arange(len(scores)))
        return int(np.argmax(scores / rule.temperature + noise))
    candidates = _filtered(scores, rule)
    candidates.sort()  # so that equal sums go to the lower id, as without filters
    noise = gumbel_noise(draw.key, draw.position, candidates)
    return int(candidates[np.argmax(scores[candidates] / rule.temperature + noise)])


# ---- filters ----------------------------------------------------------------------------------------------


def _filtered(scores: Floats, rule: SamplingRule) -> Ids:
    """The ids that top-k, top-p and min-p leave."""
    if rule.top_p >= 1 and rule.top_k <= 0:
        scaled = scores / rule.temperature
        return np.flatnonzero(np.exp(scaled - scaled.max()) >= rule.min_p)
    nucleus = _nucleus(scores, rule)
    ids, scaled = nucleus.ids, nucleus.scaled
    if rule.min_p > 0:
        ids = ids[np.exp(scaled - scaled[0]) >= rule.min_p]
    return ids


@dataclass(frozen=True, slots=True)
class _Nucleus:
    """Candidates in order, largest first."""

    ids: Ids
    scaled: Floats
    """Their logits over the temperature."""


def _nucleus(scores: Floats, rule: SamplingRule) -> _Nucleus:
    """What top-k and top-p leave."""
    if rule.top_k > 0:
        ids = _largest(scores, rule.top_k)[: rule.top_k]
        scaled = scores[ids] / rule.temperature
        if rule.top_p >= 1:
            return _Nucleus(ids, scaled)
        mass = _mass(scaled, scaled[0])
        return _cut(ids, scaled, mass, int(mass.sum()), rule.top_p) or _Nucleus(ids, scaled)
    scaled_row = scores / rule.temperature
    total = int(_mass(scaled_row, float(scaled_row.max())).sum())
    for count in (_SHORTLIST, len(scores)):
        ids = _largest(scores, count)
        scaled = scores[ids] / rule.temperature
        nucleus = _cut(ids, scaled, _mass(scaled, scaled[0]), total, rule.top_p)
        if nucleus is not None:
            return nucleus
    return _Nucleus(ids, scaled)


def _largest(scores: Floats, count: int) -> Ids:
    """At least `count` ids (all of those equal to the last one, too), by logit descending, then id ascending."""
    if count >= len(scores):
        ids = np.arange(len(scores))
    else:
        bound = np.partition(scores, len(scores) - count)[len(scores) - count]
        ids = np.flatnonzero(scores >= bound)
    ids = ids[np.argsort(-scores[ids], kind="stable")]
    return ids[~np.isneginf(scores[ids])]


def _mass(scaled: Floats, largest: float) -> NDArray[np.uint64]:
    """Unnormalized probabilities in fixed point: sums of up to 2**23 of them are exact in any order."""
    return np.floor(np.exp(scaled - largest) * float(1 << _MASS_BITS)).astype(np.uint64)


def _cut(ids: Ids, scaled: Floats, mass: NDArray[np.uint64], total: int, top_p: float) -> _Nucleus | None:
    """The smallest prefix of at least `top_p` of the total mass, or None when these candidates have less."""
    threshold = np.uint64(top_p * total)
    reached = np.cumsum(mass) >= threshold
    if not reached[-1]:
        return None
    keep = int(np.argmax(reached)) + 1
    return _Nucleus(ids[:keep], scaled[:keep])


# ---- noise ------------------------------------------------------------------------------------------------


def _mixed(word: int) -> int:
    """splitmix64's finalizer (Steele, Lea and Flood 2014) on one word."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def gumbel_noise(key: int, position: int, ids: NDArray[np.integer]) -> Floats:
    """Standard Gumbel noise for tokens `ids` `[n]` at one position, from a counter-based hash."""
    stream = _mixed((_mixed((key + _GOLDEN) & _WORD) + (position + 1) * _GOLDEN) & _WORD)
    with np.errstate(over="ignore"):
        words = np.uint64(stream) + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        words ^= words >> np.uint64(31)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return -np.log(-np.log(uniform))


# ---- log-probabilities ------------------------------------------------------------------------------------


def _with_logprobs(raw: Floats, token: int, count: int) -> Drawn:
    largest = raw.max()
    normalizer = largest + np.log(np.exp(raw - largest).sum())
    best = _largest(raw, count)[:count] if count else ()
    return Drawn(
        token=token,
        logprob=float(raw[token] - normalizer),
        alternatives=tuple(Alternative(int(id), b"", float(raw[id] - normalizer)) for id in best),
    )
