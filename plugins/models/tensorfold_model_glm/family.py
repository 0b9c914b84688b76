"""The family: what it claims and how it builds."""

from __future__ import annotations

from typing import Final

from tensorfold.compute.declared import sampling_defaults
from tensorfold.compute.nested import senses, text_stop_ids, towers
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Geometry, GgufArchitecture
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_glm.config import VARIANTS, Variant, glm_config
from tensorfold_model_glm.decoder import GlmDecoder, build, states
from tensorfold_model_glm.format import chat_format

__all__ = ["GlmFamily"]

_CAPABILITIES: Final = frozenset({"tools", "thinking"})


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
        found = _recognized(config)
        if found is None:
            return None
        variant, claim = found
        glm_config(config, variant)
        left = towers(config)
        return Claim(claim.score, f"{claim.reason}, its {' and '.join(left)} tower left") if left else claim

    def geometry(self, config: ModelConfig) -> Geometry:
        """From the config alone."""
        read = glm_config(config, _variant(config))
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
        return build(glm_config(config, _variant(config)), weights)

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Plain text."""
        return chat_format()


def _recognized(config: ModelConfig) -> tuple[Variant, Claim] | None:
    for variant in VARIANTS:
        if config.model_type == variant.model_type:
            return variant, Claim(100, f"model_type {variant.model_type}")
    for variant in VARIANTS:
        if variant.architecture in config.architectures:
            return variant, Claim(50, f"architecture {variant.architecture}")
    return None


def _variant(config: ModelConfig) -> Variant:
    found = _recognized(config)
    if found is None:
        raise CheckpointUnsupported(f"{config.where}: model_type is {config.model_type!r}, which is not of this family")
    return found[0]
