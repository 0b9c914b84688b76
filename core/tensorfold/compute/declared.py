"""What every family declares from its config alike: end tokens and recommended sampling."""

from __future__ import annotations

from tensorfold.contracts.family import SamplingDefaults
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["sampling_defaults", "stop_ids"]


def stop_ids(config: ModelConfig) -> frozenset[int]:
    """End tokens of the config and of the generation config together: neither is complete in every checkpoint."""
    return frozenset((*config.ids("eos_token_id"), *config.ids("eos_token_id", "generation")))


def sampling_defaults(config: ModelConfig) -> SamplingDefaults:
    """What `generation_config.json` recommends for sampling.

    `do_sample: false` recommends greedy replies; true without a temperature recommends temperature 1.
    """
    generation = ModelConfig(config.generation, {}, config.where, "generation_config.")
    samples = generation.get(bool, "do_sample", None)
    return SamplingDefaults(
        temperature=0.0
        if samples is False
        else _within(generation, "temperature", 0.0, otherwise=1.0 if samples else None),
        top_p=_within(generation, "top_p", 0.0, 1.0),
        top_k=None if (top_k := generation.get(int, "top_k", None)) is None else max(top_k, 0),
        min_p=_within(generation, "min_p", 0.0, 1.0),
        repetition_penalty=_within(generation, "repetition_penalty", 0.0),
    )


def _within(
    generation: ModelConfig, key: str, low: float, high: float = float("inf"), *, otherwise: float | None = None
) -> float | None:
    value = generation.get(float, key, otherwise)
    if value is not None and not low <= value <= high:
        raise CheckpointUnsupported(
            f"{generation.where}: {generation.path}{key} is {value}, which cannot be sampled by"
        )
    return value
