"""Checkpoints of models with several towers: where the text model stands in their config and among their tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tensorfold.compute.declared import stop_ids
from tensorfold.contracts.arrays import A
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights

__all__ = ["TextNames", "is_tied", "senses", "text_config", "text_names", "text_stop_ids", "towers"]

_TOWERS: Final = ("vision_config", "audio_config")


@dataclass(frozen=True, slots=True)
class TextNames:
    """Under which names a checkpoint holds its text model."""

    root: str
    """Of embedding, layers and last norm."""
    head: str
    """Of the output head's module."""


_NAMES: Final = (
    TextNames("model.language_model", "lm_head"),
    TextNames("language_model.model", "language_model.lm_head"),
    TextNames("model", "lm_head"),
)
"""transformers since 5, transformers 4 and MLX, a text model alone."""


def text_config(config: ModelConfig) -> ModelConfig:
    """The section `text_config`, or the config itself where there is none."""
    return config.section("text_config") or config


def towers(config: ModelConfig) -> tuple[str, ...]:
    """What else the config describes: `vision`, `audio`."""
    return tuple(key.removesuffix("_config") for key in _TOWERS if config.section(key) is not None)


def senses(config: ModelConfig) -> frozenset[str]:
    """Which of them are capabilities: `vision`."""
    return frozenset({"vision"} & set(towers(config)))


def text_stop_ids(config: ModelConfig) -> frozenset[int]:
    """End tokens of the config, of its text section and of the generation config together."""
    return stop_ids(config) | frozenset(text_config(config).ids("eos_token_id"))


def is_tied(config: ModelConfig, *, default: bool) -> bool:
    """Whether the output head is the embedding; the outer key counts before the one of the text section."""
    inner = text_config(config).get(bool, "tie_word_embeddings", default)
    return config.get(bool, "tie_word_embeddings", inner)


def text_names(weights: Weights[A], probe: str, names: Sequence[TextNames] = _NAMES) -> TextNames:
    """Where the text model is: under the first root that has the tensor `probe`; when none has it, the last."""
    for candidate in names:
        if weights.has(f"{candidate.root}.{probe}"):
            return candidate
    return names[-1]
