"""What clients of llama.cpp's server ask a model about: `/props`, `/apply-template`, and metrics under its names.

`timings` and `prompt_progress`, which they read off replies, stand in the replies of the OpenAI dialect; `meta` stands in
the entries of `/v1/models`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tensorfold import hookimpl
from tensorfold.contracts.dialect import Dialect, InquiryEndpoint, Resource
from tensorfold.contracts.engine import ModelInfo, Services
from tensorfold.contracts.examples import Example
from tensorfold.contracts.settings import PluginSettings
from tensorfold.ir import JSON
from tensorfold.wire.chats import ChatFields
from tensorfold.wire.envelope import CommonErrors
from tensorfold_dialect_llamacpp.apply_template import ApplyTemplateCodec
from tensorfold_dialect_llamacpp.props import Props

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

__all__ = ["llamacpp_dialect", "tensorfold_dialects", "tensorfold_examples"]


def llamacpp_dialect() -> Dialect:
    """The dialect's declaration."""
    apply_template, bodies, about = ApplyTemplateCodec(), (ChatFields,), "the text that messages render to"
    return Dialect(
        name="llamacpp",
        errors=CommonErrors(),
        inquiries=(
            InquiryEndpoint("/apply-template", apply_template, bodies=bodies, about=about),
            InquiryEndpoint("/v1/apply-template", apply_template, bodies=bodies, about=about),
        ),
        resources=lambda services: (Resource("/props", Props(services)),),
        collectors=_collectors,
        describe_model=_describe,
    )


def _collectors(services: Services) -> Sequence[Collector]:
    from tensorfold_dialect_llamacpp.metrics import LlamaCppMetrics  # only a server needs the library

    return (LlamaCppMetrics(services),)


def _describe(model: ModelInfo) -> Mapping[str, JSON]:
    inputs: list[JSON] = ["text", "image"] if "vision" in model.capabilities else ["text"]
    aliases: list[JSON] = [*model.aliases]
    return {"aliases": aliases, "architecture": {"input_modalities": inputs, "output_modalities": ["text"]}}


@hookimpl
def tensorfold_dialects(settings: PluginSettings) -> Iterable[Dialect]:
    """One dialect."""
    yield llamacpp_dialect()


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_dialect_llamacpp.examples import EXAMPLE

    yield EXAMPLE
