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
from tensorfold_acme.granite.config import granite_config
from tensorfold_acme.granite.decoder import GraniteDecoder, build, states

_RECOGNIZER: Final = Recognizer(
    variants=(Marks(("granite",), ("GraniteForCausalLM",)),), check=lambda config, _: granite_config(config)
)


class GraniteFamily:
    """granite."""

    name = "granite"
    gguf: tuple[GgufArchitecture, ...] = ()

    def claim(self, config: ModelConfig) -> Claim | None:
        """By model type, then by architecture."""
        return _RECOGNIZER.claim(config)

    def geometry(self, config: ModelConfig) -> Geometry:
        """From the config alone."""
        read = granite_config(config)
        return Geometry(
            vocabulary=read.vocabulary,
            hidden=read.hidden,
            layers=read.layers,
            window=read.window,
            states=states(read),
            stop_ids=stop_ids(config),
            sampling=sampling_defaults(config),
        )

    def build(self, config: ModelConfig, weights: Weights[A]) -> GraniteDecoder[A]:
        """The decoder."""
        return build(granite_config(config), weights)

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Plain text."""
        from tensorfold.chat.plain import PlainFormat

        return PlainFormat()
