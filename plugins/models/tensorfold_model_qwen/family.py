"""The family: what it claims and how it builds."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.declared import sampling_defaults
from tensorfold.compute.nested import senses, text_config, text_stop_ids
from tensorfold.compute.recognizing import Recognizer
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Geometry, GgufArchitecture
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights
from tensorfold_model_qwen.config import VARIANTS, Variant, qwen_config
from tensorfold_model_qwen.decoder import QwenDecoder, build, states
from tensorfold_model_qwen.format import chat_format
from tensorfold_model_qwen.gguf import ARCHITECTURES

__all__ = ["QwenFamily"]

_SHAPE: Final = frozenset(
    {
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
    }
)
"""Keys that together only a model of this shape has."""

_CAPABILITIES: Final = frozenset({"tools", "thinking"})


class QwenFamily:
    """qwen3_5 and qwen3_5_moe."""

    @property
    def name(self) -> str:
        """Of the family."""
        return "qwen"

    @property
    def gguf(self) -> tuple[GgufArchitecture, ...]:
        """None."""
        return ARCHITECTURES

    def claim(self, config: ModelConfig) -> Claim | None:
        """By model type, then by architecture, then (of a config that names neither) by its shape.

        Raises:
            CheckpointUnsupported: a checkpoint of this family with a feature that is not run.
        """
        return _RECOGNIZER.claim(config)

    def geometry(self, config: ModelConfig) -> Geometry:
        """From the config alone."""
        read = qwen_config(config, _RECOGNIZER.variant(config))
        return Geometry(
            vocabulary=read.vocabulary,
            hidden=read.hidden,
            layers=len(read.kinds),
            window=read.window,
            states=states(read),
            stop_ids=text_stop_ids(config),
            sampling=sampling_defaults(config),
            capabilities=_CAPABILITIES | senses(config),
        )

    def build(self, config: ModelConfig, weights: Weights[A]) -> QwenDecoder[A]:
        """The decoder."""
        return build(qwen_config(config, _RECOGNIZER.variant(config)), weights)

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Reasoning in `<think>`, calls in XML."""
        return chat_format()


def _guess(config: ModelConfig) -> tuple[Variant, Claim] | None:
    text = text_config(config)
    if not text.values.keys() >= _SHAPE:
        return None
    variant = VARIANTS[1 if text.values.get("num_experts") else 0]
    return variant, Claim(20, "the config has no model_type and the keys of a gated delta net")


_RECOGNIZER: Final = Recognizer(variants=VARIANTS, check=qwen_config, guess=_guess)
