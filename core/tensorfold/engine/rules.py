"""A request's sampling rule, after the server's and the checkpoint's defaults."""

from __future__ import annotations

from typing import TypeVar

from tensorfold.contracts.family import SamplingDefaults
from tensorfold.contracts.sampling import SamplingRule
from tensorfold.ir import Sampling

__all__ = ["sampling_rule"]

T = TypeVar("T", int, float)

COLDEST = 1e-100
"""Temperatures below are greedy, which they come to: a logit divided by the smallest of them is no finite number."""


def sampling_rule(asked: Sampling, server: Sampling, checkpoint: SamplingDefaults) -> SamplingRule:
    """Each value from the request, else the server's configuration, else the checkpoint, else off.

    Without a temperature from any of them the reply is greedy: nothing says that this checkpoint was tuned to be sampled.
    """
    temperature = _first(0.0, asked.temperature, server.temperature, checkpoint.temperature)
    return SamplingRule(
        temperature=temperature if temperature >= COLDEST else 0.0,
        top_p=_first(1.0, asked.top_p, server.top_p, checkpoint.top_p),
        top_k=max(0, _first(0, asked.top_k, server.top_k, checkpoint.top_k)),
        min_p=_first(0.0, asked.min_p, server.min_p, checkpoint.min_p),
        presence_penalty=_first(0.0, asked.presence_penalty, server.presence_penalty),
        frequency_penalty=_first(0.0, asked.frequency_penalty, server.frequency_penalty),
        repetition_penalty=_first(
            1.0, asked.repetition_penalty, server.repetition_penalty, checkpoint.repetition_penalty
        ),
        logit_bias=asked.logit_bias or server.logit_bias,
    )


def _first(otherwise: T, *values: T | None) -> T:
    return next((value for value in values if value is not None), otherwise)
