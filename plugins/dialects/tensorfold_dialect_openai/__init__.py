"""The OpenAI API: chat completions and text completions, whole and streamed.

Beyond OpenAI's own fields it takes the sampling and limit fields that open servers share (`top_k`, `min_p`,
`repetition_penalty`, `min_tokens`, `stop_token_ids`, `ignore_eos`, ...), and tensorfold's `draft` and `priority`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.dialect import Dialect, Endpoint
from tensorfold.contracts.settings import PluginSettings
from tensorfold_dialect_openai.chat import ChatCodec
from tensorfold_dialect_openai.completions import CompletionsCodec
from tensorfold_dialect_openai.errors import OpenAIErrors

__all__ = ["openai_dialect", "tensorfold_dialects"]


def openai_dialect() -> Dialect:
    """The dialect's declaration."""
    return Dialect(
        name="openai",
        errors=OpenAIErrors(),
        endpoints=(
            Endpoint("/v1/chat/completions", ChatCodec()),
            Endpoint("/v1/completions", CompletionsCodec()),
        ),
    )


@hookimpl
def tensorfold_dialects(settings: PluginSettings) -> Iterable[Dialect]:
    """One dialect."""
    yield openai_dialect()
