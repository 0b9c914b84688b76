"""The family: what it claims and how it builds."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tensorfold.compute.declared import sampling_defaults
from tensorfold.compute.nested import senses, text_config, text_stop_ids
from tensorfold.compute.recognizing import Recognizer
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Decoder, Drafter, Geometry, GgufArchitecture
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_gemma.assistant import Assistant, assistant_body
from tensorfold_model_gemma.config import VARIANTS, Variant, gemma_config
from tensorfold_model_gemma.decoder import GemmaDecoder, build, states
from tensorfold_model_gemma.format import chat_format
from tensorfold_model_gemma.gemma4 import gemma4_config
from tensorfold_model_gemma.gguf import ARCHITECTURES
from tensorfold_model_gemma.pairing import AssistantConfig, alone_config, is_assistant, paired_config, refuse_alone

__all__ = ["GemmaFamily"]

_SHAPE: Final = frozenset(
    {"hidden_size", "num_hidden_layers", "hidden_size_per_layer_input", "attention_k_eq_v", "num_kv_shared_layers"}
)
"""Keys that together only a Gemma 4 has."""


class GemmaFamily:
    """gemma3 and gemma4, with and without their other towers."""

    @property
    def name(self) -> str:
        """Of the family."""
        return "gemma"

    @property
    def gguf(self) -> tuple[GgufArchitecture, ...]:
        """Of both generations, and of drafters."""
        return ARCHITECTURES

    def claim(self, config: ModelConfig) -> Claim | None:
        """By model type, then by architecture, then (of a config that names neither) by its shape.

        Raises:
            CheckpointUnsupported: a checkpoint of this family with a feature that is not run.
        """
        refuse_alone(config)
        return _RECOGNIZER.claim(config)

    def geometry(self, config: ModelConfig) -> Geometry:
        """From the config alone."""
        variant = _RECOGNIZER.variant(config)
        read = gemma_config(config, variant)
        return Geometry(
            vocabulary=read.vocabulary,
            hidden=read.hidden,
            layers=len(read.layers),
            window=read.window,
            states=states(read),
            stop_ids=text_stop_ids(config),
            sampling=sampling_defaults(config),
            capabilities=variant.capabilities | senses(config),
        )

    def build(self, config: ModelConfig, weights: Weights[A]) -> GemmaDecoder[A]:
        """The decoder."""
        return build(gemma_config(config, _RECOGNIZER.variant(config)), weights)

    def drafter(self, config: ModelConfig) -> Drafter | None:
        """Of a `gemma4_assistant`, the Gemma 4 models that it fits."""
        if not is_assistant(config):
            return None
        read = alone_config(config)
        return Drafter(
            target=f"a Gemma 4 of hidden size {read.target}, with a vocabulary of {read.body.vocabulary} tokens and"
            f" windows of {read.sliding}",
            layers=len(read.body.layers),
            hidden=read.body.hidden,
            vocabulary=read.body.vocabulary,
        )

    def declare_drafter(self, drafter: ModelConfig, weights: Weights[A]) -> None:
        """All that its checkpoint holds."""
        assistant_body(alone_config(drafter), weights)

    def check_drafter(self, config: ModelConfig, drafter: ModelConfig) -> None:
        """A `gemma4_assistant` that was made for this Gemma 4.

        Raises:
            CheckpointUnsupported: it is something else, or made for another one; named.
        """
        _paired(config, drafter)

    def build_drafter(
        self, config: ModelConfig, decoder: Decoder[A], drafter: ModelConfig, weights: Weights[A]
    ) -> Decoder[A]:
        """The decoder with its drafter."""
        if not isinstance(decoder, GemmaDecoder):
            raise TypeError(f"a drafter of Gemma is given a {type(decoder).__name__}")
        target: GemmaDecoder[A] = decoder
        return replace(target, draft=Assistant(target, assistant_body(_paired(config, drafter), weights)))

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Gemma 3's plain text, or Gemma 4's reasoning and calls."""
        return chat_format(_RECOGNIZER.variant(config))


def _paired(config: ModelConfig, drafter: ModelConfig) -> AssistantConfig:
    variant = _RECOGNIZER.variant(config)
    if variant.read is not gemma4_config:
        raise CheckpointUnsupported(f"{config.where}: model_type is {config.model_type!r}, and drafters are Gemma 4's")
    return paired_config(config, drafter)


def _guess(config: ModelConfig) -> tuple[Variant, Claim] | None:
    if not text_config(config).values.keys() >= _SHAPE:
        return None
    return VARIANTS[-1], Claim(20, "the config has no model_type and the keys of a Gemma 4")


_RECOGNIZER: Final = Recognizer(variants=VARIANTS, check=gemma_config, guess=_guess)
