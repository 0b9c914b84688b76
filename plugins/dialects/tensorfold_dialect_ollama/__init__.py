"""Ollama's API: chat and generate, whole and streamed as lines of JSON, and the description of the model."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.dialect import Dialect, Endpoint, InquiryEndpoint, Resource
from tensorfold.contracts.examples import Example
from tensorfold.contracts.settings import PluginSettings
from tensorfold_dialect_ollama.catalog import ShowBody, ShowCodec, Tags, Version
from tensorfold_dialect_ollama.chat import ChatBody, ChatCodec
from tensorfold_dialect_ollama.errors import OllamaErrors
from tensorfold_dialect_ollama.generate import GenerateBody, GenerateCodec

__all__ = ["ollama_dialect", "tensorfold_dialects", "tensorfold_examples"]


def ollama_dialect() -> Dialect:
    """The dialect's declaration."""
    return Dialect(
        name="ollama",
        errors=OllamaErrors(),
        endpoints=(
            Endpoint("/api/chat", ChatCodec(), bodies=(ChatBody,), about="a reply to a conversation"),
            Endpoint("/api/generate", GenerateCodec(), bodies=(GenerateBody,), about="a reply to a prompt"),
        ),
        inquiries=(
            InquiryEndpoint("/api/show", ShowCodec(), bodies=(ShowBody,), about="what the model is and can do"),
        ),
        resources=lambda services: (
            Resource("/api/tags", Tags(services, running=False)),
            Resource("/api/ps", Tags(services, running=True)),
            Resource("/api/version", Version()),
        ),
    )


@hookimpl
def tensorfold_dialects(settings: PluginSettings) -> Iterable[Dialect]:
    """One dialect."""
    yield ollama_dialect()


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_dialect_ollama.examples import EXAMPLE

    yield EXAMPLE
