"""The family: what it claims and how it builds."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.declared import sampling_defaults, stop_ids
from tensorfold.compute.recognizing import Recognizer
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Geometry, GgufArchitecture
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights
from tensorfold_model_llama.config import VARIANTS, Variant, llama_config
from tensorfold_model_llama.decoder import LlamaDecoder, build, states
from tensorfold_model_llama.format import chat_format
from tensorfold_model_llama.gguf import ARCHITECTURES

__all__ = ["LlamaFamily"]

_SHAPE: Final = frozenset(
    {
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "rms_norm_eps",
    }
)
"""Keys that together only a model of this shape has."""


class LlamaFamily:
    """llama, mistral, qwen2 and qwen3, dense."""

    @property
    def name(self) -> str:
        """Of the family."""
        return "llama"

    @property
    def gguf(self) -> tuple[GgufArchitecture, ...]:
        """llama, qwen2 and qwen3."""
        return ARCHITECTURES

    def claim(self, config: ModelConfig) -> Claim | None:
        """By model type, then by architecture, then (of a config that names neither) by its shape.

        Raises:
            CheckpointUnsupported: a checkpoint of this family with a feature that is not run.
        """
        return _RECOGNIZER.claim(config)

    def geometry(self, config: ModelConfig) -> Geometry:
        """From the config alone."""
        read = llama_config(config, _RECOGNIZER.variant(config))
        return Geometry(
            vocabulary=read.vocabulary,
            hidden=read.hidden,
            layers=read.layers,
            window=read.window,
            states=states(read),
            stop_ids=stop_ids(config),
            sampling=sampling_defaults(config),
        )

    def build(self, config: ModelConfig, weights: Weights[A]) -> LlamaDecoder[A]:
        """The decoder."""
        return build(llama_config(config, _RECOGNIZER.variant(config)), weights)

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Plain text."""
        return chat_format()


def _guess(config: ModelConfig) -> tuple[Variant, Claim] | None:
    if not config.values.keys() >= _SHAPE:
        return None
    return VARIANTS[0], Claim(10, "the config has no model_type and the keys of a llama")


_RECOGNIZER: Final = Recognizer(variants=VARIANTS, check=llama_config, guess=_guess)
