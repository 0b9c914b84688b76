"""The family: what it claims and how it builds."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.declared import sampling_defaults
from tensorfold.compute.nested import senses, text_stop_ids
from tensorfold.compute.recognizing import Marks, Recognizer
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Geometry, GgufArchitecture
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights
from tensorfold_model_flash_next.config import flash_next_config
from tensorfold_model_flash_next.decoder import FlashNextDecoder, build, states
from tensorfold_model_flash_next.format import chat_format

__all__ = ["FlashNextFamily"]

_MARKS: Final = Marks(
    # The name while it was an experiment, with a vision tower and without, and what some conversions call it.
    ("qwen4_exp", "qwen4_exp_text", "qwen3_8_flash_next"),
    ("Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM"),
)
_RECOGNIZER: Final = Recognizer(variants=(_MARKS,), check=lambda config, _: flash_next_config(config))
_CAPABILITIES: Final = frozenset({"tools", "thinking"})


class FlashNextFamily:
    """Qwen3.8-Flash-Next, without the vision tower."""

    @property
    def name(self) -> str:
        """Of the family."""
        return "flash_next"

    @property
    def gguf(self) -> tuple[GgufArchitecture, ...]:
        """None is read."""
        return ()

    def claim(self, config: ModelConfig) -> Claim | None:
        """By model type, then by architecture.

        Raises:
            CheckpointUnsupported: a checkpoint of this family with a feature that is not run.
        """
        return _RECOGNIZER.claim(config)

    def geometry(self, config: ModelConfig) -> Geometry:
        """From the config alone."""
        read = flash_next_config(config)
        return Geometry(
            vocabulary=read.vocabulary,
            hidden=read.wide,
            layers=len(read.linear),
            window=read.window,
            states=states(read),
            stop_ids=text_stop_ids(config),
            sampling=sampling_defaults(config),
            capabilities=_CAPABILITIES | senses(config),
        )

    def build(self, config: ModelConfig, weights: Weights[A]) -> FlashNextDecoder[A]:
        """The decoder."""
        return build(flash_next_config(config), weights)

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Plain text."""
        return chat_format()
