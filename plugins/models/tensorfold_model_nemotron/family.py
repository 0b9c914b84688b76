"""The family: what it claims and how it builds."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.declared import sampling_defaults, stop_ids
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Geometry, GgufArchitecture
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights
from tensorfold_model_nemotron.config import MODEL_TYPE, nemotron_config
from tensorfold_model_nemotron.decoder import NemotronDecoder, build, states
from tensorfold_model_nemotron.format import chat_format
from tensorfold_model_nemotron.gguf import ARCHITECTURES

__all__ = ["NemotronFamily"]

_ARCHITECTURE: Final = "NemotronHForCausalLM"

_SHAPE: Final = frozenset(
    {"vocab_size", "hidden_size", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "layer_norm_epsilon"}
)
"""Keys that together only a model of this shape has."""
_BY_SHAPE: Final = 20
"""The score of such a config: above a guess from keys that most models have."""


class NemotronFamily:
    """nemotron_h."""

    @property
    def name(self) -> str:
        """Of the family."""
        return "nemotron"

    @property
    def gguf(self) -> tuple[GgufArchitecture, ...]:
        """None."""
        return ARCHITECTURES

    def claim(self, config: ModelConfig) -> Claim | None:
        """By model type, then by architecture, then (of a config that names neither) by its shape.

        Raises:
            CheckpointUnsupported: a checkpoint of this family with a feature that is not run.
        """
        claim = _recognized(config)
        if claim is not None:
            nemotron_config(config)
        return claim

    def geometry(self, config: ModelConfig) -> Geometry:
        """From the config alone."""
        read = nemotron_config(config)
        return Geometry(
            vocabulary=read.vocabulary,
            hidden=read.hidden,
            layers=len(read.kinds),
            window=read.window,
            states=states(read),
            stop_ids=stop_ids(config),
            sampling=sampling_defaults(config),
            capabilities=frozenset({"tools", "thinking"}),
        )

    def build(self, config: ModelConfig, weights: Weights[A]) -> NemotronDecoder[A]:
        """The decoder."""
        return build(nemotron_config(config), weights)

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Reasoning in `<think>`, calls in XML, with switches of their own."""
        return chat_format()


def _recognized(config: ModelConfig) -> Claim | None:
    if config.model_type == MODEL_TYPE:
        return Claim(100, f"model_type {MODEL_TYPE}")
    if _ARCHITECTURE in config.architectures:
        return Claim(50, f"architecture {_ARCHITECTURE}")
    if not config.model_type and not config.architectures and config.values.keys() >= _SHAPE:
        return Claim(_BY_SHAPE, "the config has no model_type and the keys of a Mamba-2 hybrid")
    return None
