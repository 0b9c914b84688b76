"""vLLM's tokenizer routes: `/tokenize` and `/detokenize`, also under `/v1`."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.dialect import Dialect, InquiryEndpoint
from tensorfold.contracts.examples import Example
from tensorfold.contracts.settings import PluginSettings
from tensorfold.wire.envelope import CommonErrors
from tensorfold_dialect_vllm.detokenize import DetokenizeBody, DetokenizeCodec
from tensorfold_dialect_vllm.tokenize import ChatBody, TextBody, TokenizeCodec

__all__ = ["tensorfold_dialects", "tensorfold_examples", "vllm_dialect"]


def vllm_dialect() -> Dialect:
    """The dialect's declaration."""
    tokenize, detokenize = TokenizeCodec(), DetokenizeCodec()
    prompts, tokens = (TextBody, ChatBody), (DetokenizeBody,)
    ids, text = "the token ids of a prompt", "the text of token ids"
    return Dialect(
        name="vllm",
        errors=CommonErrors(),
        inquiries=(
            InquiryEndpoint("/tokenize", tokenize, bodies=prompts, about=ids),
            InquiryEndpoint("/v1/tokenize", tokenize, bodies=prompts, about=ids),
            InquiryEndpoint("/detokenize", detokenize, bodies=tokens, about=text),
            InquiryEndpoint("/v1/detokenize", detokenize, bodies=tokens, about=text),
        ),
    )


@hookimpl
def tensorfold_dialects(settings: PluginSettings) -> Iterable[Dialect]:
    """One dialect."""
    yield vllm_dialect()


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_dialect_vllm.examples import EXAMPLE

    yield EXAMPLE
