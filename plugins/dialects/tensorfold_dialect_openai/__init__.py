"""The OpenAI API: chat completions, text completions and responses, whole and streamed.

Beyond OpenAI's own fields it takes the sampling and limit fields that open servers share (`top_k`, `min_p`,
`repetition_penalty`, `min_tokens`, `stop_token_ids`, `ignore_eos`, ...), and tensorfold's `draft` and `priority`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.dialect import Dialect, Endpoint, InquiryEndpoint, Resource
from tensorfold.contracts.examples import Example
from tensorfold.contracts.settings import PluginSettings
from tensorfold.wire.chats import ChatFields
from tensorfold_dialect_openai.chat import ChatCodec, ChatControls
from tensorfold_dialect_openai.completions import CompletionBody, CompletionsCodec
from tensorfold_dialect_openai.errors import OpenAIErrors
from tensorfold_dialect_openai.responses import InputTokensCodec, ResponsesCodec
from tensorfold_dialect_openai.responses_body import ResponsesBody
from tensorfold_dialect_openai.responses_resources import InputItems, OneResponse
from tensorfold_dialect_openai.responses_store import ResponseStore

__all__ = ["openai_dialect", "tensorfold_dialects", "tensorfold_examples"]


def openai_dialect() -> Dialect:
    """The dialect's declaration, with a store of its own for responses."""
    store = ResponseStore()
    return Dialect(
        name="openai",
        errors=OpenAIErrors(),
        endpoints=(
            Endpoint(
                "/v1/chat/completions",
                ChatCodec(),
                bodies=((ChatControls, ChatFields),),
                about="a reply to a conversation",
            ),
            Endpoint("/v1/completions", CompletionsCodec(), bodies=(CompletionBody,), about="what follows a text"),
            Endpoint("/v1/responses", ResponsesCodec(store), bodies=(ResponsesBody,), about="a turn of a conversation"),
        ),
        inquiries=(
            InquiryEndpoint(
                "/v1/responses/input_tokens",
                InputTokensCodec(store),
                bodies=(ResponsesBody,),
                about="the tokens of its prompt, counted",
            ),
        ),
        resources=lambda services: (
            Resource("/v1/responses/{id}", OneResponse(store)),
            Resource("/v1/responses/{id}/input_items", InputItems(store)),
        ),
    )


@hookimpl
def tensorfold_dialects(settings: PluginSettings) -> Iterable[Dialect]:
    """One dialect."""
    yield openai_dialect()


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_dialect_openai.examples import EXAMPLE

    yield EXAMPLE
