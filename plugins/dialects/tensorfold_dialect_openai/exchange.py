"""A decoded request of chat or text completions, and the way to answer it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from tensorfold.contracts.dialect import DecodeContext, StreamEncoder
from tensorfold.ir import Answer, Request
from tensorfold.wire.grammars import grammar_field
from tensorfold_dialect_openai.controls import Controls, StreamOptions
from tensorfold_dialect_openai.replies import Head, head_of

__all__ = ["CompletionExchange"]


class CompletionExchange(ABC):
    """Implements `contracts.dialect.Exchange`; chat and text differ in what a choice is."""

    ids: str
    """What their answers' ids begin with."""
    whole: str
    """The `object` of a whole answer."""
    piece: str
    """That of a stream's events."""

    def __init__(self, requests: tuple[Request, ...], wanted: Controls, context: DecodeContext) -> None:
        self.requests = requests
        self.stream = bool(wanted.stream)
        self.options = wanted.stream_options or StreamOptions()
        self._wanted = wanted
        self.logprobs = requests[0].logprobs is not None
        self._context = context

    @property
    def names(self) -> Mapping[str, str]:
        """The field that binds the reply's form has six names."""
        field = grammar_field(self._wanted)
        return {} if field is None else {"response_format": field}

    def head(self, object: str) -> Head:
        """What every body begins with."""
        return head_of(self.ids, object, self._context)

    @abstractmethod
    def answer(self, answer: Answer) -> bytes:
        """The whole answer."""

    @abstractmethod
    def encoder(self) -> StreamEncoder:
        """A fresh encoder of a stream."""
