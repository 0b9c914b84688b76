"""The family: what it claims and how it builds."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.declared import sampling_defaults
from tensorfold.compute.nested import senses, text_config, text_stop_ids, towers
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Geometry, GgufArchitecture
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights
from tensorfold.errors import CheckpointUnsupported
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
_BY_SHAPE: Final = 20
"""The score of such a config: above a guess from keys that most models have."""

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
        found = _recognized(config)
        if found is None:
            return None
        variant, claim = found
        qwen_config(config, variant)
        left = towers(config)
        return Claim(claim.score, f"{claim.reason}, its {' and '.join(left)} tower left") if left else claim

    def geometry(self, config: ModelConfig) -> Geometry:
        """From the config alone."""
        read = qwen_config(config, _variant(config))
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
        return build(qwen_config(config, _variant(config)), weights)

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Reasoning in `<think>`, calls in XML."""
        return chat_format()


def _recognized(config: ModelConfig) -> tuple[Variant, Claim] | None:
    for variant in VARIANTS:
        if config.model_type in variant.model_types:
            return variant, Claim(100, f"model_type {config.model_type}")
    for variant in VARIANTS:
        for architecture in variant.architectures:
            if architecture in config.architectures:
                return variant, Claim(50, f"architecture {architecture}")
    text = text_config(config)
    if not config.model_type and not config.architectures and text.values.keys() >= _SHAPE:
        variant = VARIANTS[1 if text.values.get("num_experts") else 0]
        return variant, Claim(_BY_SHAPE, "the config has no model_type and the keys of a gated delta net")
    return None


def _variant(config: ModelConfig) -> Variant:
    found = _recognized(config)
    if found is None:
        raise CheckpointUnsupported(f"{config.where}: model_type is {config.model_type!r}, which is not of this family")
    return found[0]
