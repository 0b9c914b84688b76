"""`POST /api/generate`: one prompt, rendered as a user's message, or raw."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.contracts.dialect import DecodeContext, Exchange, StreamEncoder
from tensorfold.errors import DecodeError
from tensorfold.ir import JSON, Answer, Chat, Message, Prompt, Request, Text, TextPrompt, ToolCall
from tensorfold.wire import BodyDecoder
from tensorfold_dialect_ollama.errors import OllamaErrors
from tensorfold_dialect_ollama.messages import images_of
from tensorfold_dialect_ollama.options import Shared, build_request, read_think
from tensorfold_dialect_ollama.replies import LineEncoder, Reply, created_at, finish

__all__ = ["GenerateBody", "GenerateCodec"]

UNSERVED: Mapping[str, tuple[JSON, ...]] = {"suffix": ("",), "template": ("",), "context": ([],)}


class GenerateBody(Shared, kw_only=True):
    """A request's body."""

    prompt: str | None = None
    system: str | None = None
    images: list[str] | None = None
    raw: bool | None = None
    """No template: the prompt as it stands."""


class GenerateReply(Reply, kw_only=True):
    """An answer."""

    response: str
    thinking: str | UnsetType = UNSET


class GenerateCodec(OllamaErrors):
    """Decodes prompts."""

    stream_media_type = "application/x-ndjson"
    keep_alive = b""

    def __init__(self) -> None:
        self._bodies = BodyDecoder(GenerateBody, UNSERVED)

    def decode(self, body: bytes, context: DecodeContext) -> Exchange:
        """A prompt to answer."""
        wanted = self._bodies.decode(body)
        return GenerateExchange(
            build_request(_prompt(wanted), wanted, context), wanted.stream is not False, context, bool(wanted.raw)
        )


def _prompt(body: GenerateBody) -> Prompt:
    if not body.prompt:
        raise DecodeError(
            "prompt is missing or empty; the model is always loaded, and need not be asked to", param="prompt"
        )
    if body.raw:
        return TextPrompt(body.prompt)
    effort, variables = read_think(body.think)
    system = (Message("system", (Text(body.system),)),) if body.system else ()
    user = Message("user", (Text(body.prompt), *images_of(body.images)))
    return Chat(messages=(*system, user), template_kwargs=variables, reasoning_effort=effort)


class GenerateExchange:
    """One prompt and the way to answer it."""

    def __init__(self, request: Request, stream: bool, context: DecodeContext, raw: bool) -> None:
        self.requests = (request,)
        self.stream = stream
        self._context = context
        self._raw = raw

    def answer(self, answer: Answer) -> bytes:
        """One object."""
        (choice,) = answer.choices
        # A raw reply is all text: what a family would call reasoning belongs to it.
        text, thinking = (choice.thinking + choice.text, "") if self._raw else (choice.text, choice.thinking)
        reply = _reply(self._context, text, thinking)
        finish(reply, choice.reason, answer.usage, answer.timings, answer.token_sha[0])
        return msgspec.json.encode(reply)

    def encoder(self) -> StreamEncoder:
        """One object a line."""
        return GenerateEncoder(self._context, self._raw)


def _reply(context: DecodeContext, text: str, thinking: str) -> GenerateReply:
    moment = created_at(context)
    return GenerateReply(model=context.model.id, created_at=moment, response=text, thinking=thinking or UNSET)


class GenerateEncoder(LineEncoder):
    """Lines with text. No tools are offered, so there are no calls."""

    def __init__(self, context: DecodeContext, raw: bool) -> None:
        super().__init__()
        self._context = context
        self._raw = raw

    def line(self, text: str, thinking: str, calls: tuple[ToolCall, ...], first: int = 0) -> GenerateReply:
        """A reply that adds this."""
        return _reply(self._context, thinking + text, "") if self._raw else _reply(self._context, text, thinking)
