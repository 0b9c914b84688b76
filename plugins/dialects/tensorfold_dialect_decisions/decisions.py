"""`POST /v1/decisions`, in either of its shapes."""

from __future__ import annotations

from tensorfold.contracts.dialect import DecodeContext, Inquiry
from tensorfold.wire import check_body
from tensorfold.wire.envelope import CommonErrors
from tensorfold_dialect_decisions.keyed import KeyedReader
from tensorfold_dialect_decisions.labels import Resolver
from tensorfold_dialect_decisions.ordered import OrderedReader
from tensorfold_dialect_decisions.routing import ShapeReader

__all__ = ["DecisionsCodec"]


class DecisionsCodec(CommonErrors):
    """Decodes bodies; the answer has the shape of the request."""

    def __init__(self, resolver: Resolver) -> None:
        """`resolver` is that of OpenAI's shape; SGLang's has its own."""
        self._shapes = ShapeReader()
        self._keyed = KeyedReader()
        self._ordered = OrderedReader(resolver)

    def decode(self, body: bytes, context: DecodeContext) -> Inquiry:
        """Questions about an input."""
        text = check_body(body)
        match self._shapes.shape(text):
            case "keyed":
                return self._keyed.read(text, context)
            case "ordered":
                return self._ordered.read(text, context)
