"""A call's arguments, for APIs that want them as an object and not as the text that the model wrote."""

from __future__ import annotations

import json

import msgspec

__all__ = ["arguments_object"]


def arguments_object(text: str) -> msgspec.Raw | None:
    """The text as it stands, to be put into a JSON answer; None when it spells no object.

    Read and written anew, numbers could change, and half a surrogate pair would fail.
    """

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        spells = isinstance(json.loads(text, parse_constant=refuse), dict)
    except (ValueError, RecursionError):
        return None
    return msgspec.Raw(text.encode()) if spells else None
