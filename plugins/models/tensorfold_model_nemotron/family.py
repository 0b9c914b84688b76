"""The family: what it claims and how it builds."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.declared import sampling_defaults, stop_ids
from tensorfold.compute.recognizing import Marks, Recognizer
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

_MARKS: Final = Marks((MODEL_TYPE,), ("NemotronHForCausalLM",))

_SHAPE: Final = frozenset(
    {"vocab_size", "hidden_size", "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "layer_norm_epsilon"}
)
"""Keys that together only a model of this shape has."""


class NemotronFamily:
    """nemotron_h."""

    @property
    def name(self) -> str:
        """Of the family."""
        return "nemotron"

    @property
    def gguf(self) -> tuple[GgufArchitecture, ...]:
        """nemotron_h, with experts and without."""
        return ARCHITECTURES

    def claim(self, config: ModelConfig) -> Claim | None:
        """By model type, then by architecture, then (of a config that names neither) by its shape.

        Raises:
            CheckpointUnsupported: a checkpoint of this family with a feature that is not run.
        """
        return _RECOGNIZER.claim(config)

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


def _guess(config: ModelConfig) -> tuple[Marks, Claim] | None:
    if not config.values.keys() >= _SHAPE:
        return None
    return _MARKS, Claim(20, "the config has no model_type and the keys of a Mamba-2 hybrid")


_RECOGNIZER: Final = Recognizer(variants=(_MARKS,), check=lambda config, _: nemotron_config(config), guess=_guess)
