"""Fields that an API knows and this server does not serve: their default passes, any other value is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tensorfold.errors import Unsupported
from tensorfold.ir import JSON
from tensorfold.wire.values import decode_value

__all__ = ["UnservedFields"]

_ABSENT = msgspec.Raw(b"")
_LONGEST_DEFAULT = 64
"""Bytes; a longer value is no default."""


class UnservedFields:
    """A table of such fields. Safe to use from several threads."""

    def __init__(self, fields: Mapping[str, tuple[JSON, ...]]) -> None:
        """`fields`: for each name the values that pass besides null, since leaving them out means the same."""
        self._passes = dict(fields)
        # A struct of raw slices: whatever else a body holds is skipped, and no value is built.
        shape = msgspec.defstruct("Unserved", [(name, msgspec.Raw, _ABSENT) for name in fields])
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(shape)

    def check(self, body: bytes) -> None:
        """Look at a body that `check_body` has passed.

        Raises:
            Unsupported: a field has a value that this server cannot honour; the first in the table's order.
        """
        values = decode_value(self._decoder, body)
        for name, passes in self._passes.items():
            raw: msgspec.Raw = getattr(values, name)
            if self._is_default(raw, passes):
                continue
            defaults = "".join(f" or {msgspec.json.encode(value).decode()}" for value in passes)
            raise Unsupported(
                f"{name} is not served here: leave it out, or give null{defaults}", param=name, code="unsupported_value"
            )

    @staticmethod
    def _is_default(raw: msgspec.Raw, passes: tuple[JSON, ...]) -> bool:
        size = memoryview(raw).nbytes
        if size == 0 or size > _LONGEST_DEFAULT:
            return size == 0
        value: JSON = msgspec.json.decode(raw)
        # Python holds 1 == True, JSON does not.
        return value is None or any(
            value == default and isinstance(value, bool) == isinstance(default, bool) for default in passes
        )
