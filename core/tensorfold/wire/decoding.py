"""Bodies to typed structs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from tensorfold.ir import JSON
from tensorfold.wire.body import check_body
from tensorfold.wire.unserved import UnservedFields
from tensorfold.wire.values import decode_value

__all__ = ["BodyDecoder"]

T = TypeVar("T")


class BodyDecoder(Generic[T]):
    """Decodes bodies of one type. Safe to use from several threads."""

    def __init__(self, type: type[T], unserved: Mapping[str, tuple[JSON, ...]] | None = None) -> None:
        """`unserved`: fields that the API has besides those of the type, and the values of them that pass."""
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type)
        self._unserved = UnservedFields(unserved or {})

    def decode(self, body: bytes) -> T:
        """A body of this type.

        Raises:
            DecodeError: it is no JSON, or of another shape; `param` is the path of the field.
            Unsupported: a field that is not served has another value than its default.
        """
        text = check_body(body)
        value = decode_value(self._decoder, text)
        self._unserved.check(text)
        return value
