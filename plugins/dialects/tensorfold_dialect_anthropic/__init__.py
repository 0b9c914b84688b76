"""The Anthropic Messages API: replies, whole and streamed, and the count of a prompt's tokens.

Beyond Anthropic's own fields it takes `min_p`, `seed`, `ignore_eos`, `chat_template_kwargs`, and tensorfold's `draft`
and `priority`. Any `anthropic-version` is served, and any `anthropic-beta` is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.dialect import Dialect, Endpoint, InquiryEndpoint
from tensorfold.contracts.examples import Example
from tensorfold.contracts.settings import PluginSettings
from tensorfold_dialect_anthropic.body import MessagesBody, PromptBody
from tensorfold_dialect_anthropic.count import CountCodec
from tensorfold_dialect_anthropic.errors import AnthropicErrors
from tensorfold_dialect_anthropic.messages import MessagesCodec

__all__ = ["anthropic_dialect", "tensorfold_dialects", "tensorfold_examples"]


def anthropic_dialect() -> Dialect:
    """The dialect's declaration."""
    return Dialect(
        name="anthropic",
        errors=AnthropicErrors(),
        endpoints=(
            Endpoint("/v1/messages", MessagesCodec(), bodies=(MessagesBody,), about="a reply to a conversation"),
        ),
        inquiries=(
            InquiryEndpoint(
                "/v1/messages/count_tokens",
                CountCodec(),
                bodies=(PromptBody,),
                about="the tokens of its prompt, counted",
            ),
        ),
    )


@hookimpl
def tensorfold_dialects(settings: PluginSettings) -> Iterable[Dialect]:
    """One dialect."""
    yield anthropic_dialect()


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_dialect_anthropic.examples import EXAMPLE

    yield EXAMPLE
