"""JSON files of a checkpoint, read within bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from tensorfold.errors import CheckpointDamaged, CheckpointNotFound

__all__ = ["parse_object", "read_object", "read_text"]

MAX_BYTES = 64 << 20
"""The longest text file that is read whole; the index of a checkpoint with 300,000 tensors has 30 MB."""


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """A UTF-8 file.

    Raises:
        CheckpointNotFound: it may not be read.
        CheckpointDamaged: it is longer than `limit` bytes, or not UTF-8.
    """
    try:
        size = path.stat().st_size
        if size > limit:
            raise CheckpointDamaged(path, limit, f"the file has {size} bytes, and at most {limit} are read")
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise CheckpointNotFound(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CheckpointDamaged(path, error.start, "the text is not UTF-8") from error


def parse_object(path: Path, text: str, offset: int = 0, *, distinct: bool = False) -> dict[str, Any]:
    """The JSON object that a text of this file holds, which begins at byte `offset`.

    Raises:
        CheckpointDamaged: the text is not a JSON object, or (with `distinct`) says a key twice.
    """
    try:
        # NaN and Infinity pass: some configs have them.
        value = json.loads(text, object_pairs_hook=_distinct if distinct else None)
    except json.JSONDecodeError as error:
        at = offset + len(text[: error.pos].encode(errors="replace"))
        raise CheckpointDamaged(path, at, f"not JSON: {error.msg}") from error
    except RecursionError as error:
        raise CheckpointDamaged(path, offset, "the JSON is nested too deeply") from error
    except ValueError as error:
        raise CheckpointDamaged(path, offset, f"not JSON that is read: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointDamaged(path, offset, "the JSON must be an object")
    return cast("dict[str, Any]", value)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"{next(key for key in keys if keys.count(key) > 1)!r} is said twice")
    return values


def read_object(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object; empty when there is no such file.

    Raises:
        CheckpointNotFound: it may not be read.
        CheckpointDamaged: it is too long, not UTF-8, or not a JSON object.
    """
    return parse_object(path, read_text(path)) if path.exists() else {}
