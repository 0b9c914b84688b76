"""The family: what it claims and how it builds."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.declared import sampling_defaults
from tensorfold.compute.nested import senses, text_stop_ids
from tensorfold.compute.recognizing import Recognizer
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Geometry, GgufArchitecture
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights
from tensorfold_model_glm.config import VARIANTS, glm_config
from tensorfold_model_glm.decoder import GlmDecoder, build, states
from tensorfold_model_glm.format import chat_format

__all__ = ["GlmFamily"]

_CAPABILITIES: Final = frozenset({"tools", "thinking"})
_RECOGNIZER: Final = Recognizer(variants=VARIANTS, check=glm_config)


class GlmFamily:
    """GLM-5.3 and GLM-5.3-Flash, without the vision tower."""

    @property
    def name(self) -> str:
        """Of the family."""
        return "glm"

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
        read = glm_config(config, _RECOGNIZER.variant(config))
        return Geometry(
            vocabulary=read.vocabulary,
            hidden=read.hidden,
            layers=len(read.layers),
            window=read.window,
            states=states(read),
            stop_ids=text_stop_ids(config),
            sampling=sampling_defaults(config),
            capabilities=_CAPABILITIES | senses(config),
        )

    def build(self, config: ModelConfig, weights: Weights[A]) -> GlmDecoder[A]:
        """The decoder."""
        return build(glm_config(config, _RECOGNIZER.variant(config)), weights)

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Plain text."""
        return chat_format()
