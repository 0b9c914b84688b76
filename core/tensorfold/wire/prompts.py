"""A `prompt` field: text, a list of texts, token ids, or lists of token ids."""

from __future__ import annotations

import re

import msgspec

from tensorfold.errors import DecodeError
from tensorfold.wire.numbers import Int64
from tensorfold.wire.values import decode_value

__all__ = ["read_prompts"]

_KIND = re.compile(rb"\s*(\[?)\s*(.?)", re.DOTALL)
_TEXT = msgspec.json.Decoder(str)
_TEXTS = msgspec.json.Decoder(tuple[str, ...])
_IDS = msgspec.json.Decoder(tuple[Int64, ...])
_IDS_LISTS = msgspec.json.Decoder(tuple[tuple[Int64, ...], ...])


def read_prompts(raw: msgspec.Raw, field: str = "prompt") -> tuple[str | tuple[int, ...], ...]:
    """One or several prompts, each a text or token ids. What the first item is, all must be.

    Raises:
        DecodeError: another shape, mixed kinds, no prompt, or a prompt without ids.
    """
    prompts = _read(raw, field)
    for index, prompt in enumerate(prompts):
        if prompt == ():
            raise DecodeError(f"{field}[{index}] holds no token ids", param=f"{field}[{index}]")
    return prompts


def _read(raw: msgspec.Raw, field: str) -> tuple[str | tuple[int, ...], ...]:
    kind = _KIND.match(raw)
    match kind.groups() if kind else (b"", b""):
        case b"", b'"':
            return (decode_value(_TEXT, raw, field),)
        case b"[", b'"':
            texts: tuple[str, ...] = decode_value(_TEXTS, raw, field)
            return texts
        case b"[", b"[":
            lists: tuple[tuple[int, ...], ...] = decode_value(_IDS_LISTS, raw, field)
            return lists
        case b"[", b"]":
            raise DecodeError(f"{field} is an empty list", param=field)
        case b"[", first if first and first in b"-0123456789":
            return (decode_value(_IDS, raw, field),)
        case _:
            raise DecodeError(f"{field} must be a text, token ids, or a list of either", param=field)
