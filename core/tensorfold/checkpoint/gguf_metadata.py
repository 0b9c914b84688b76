"""A GGUF file's metadata, read one typed key at a time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.errors import CheckpointDamaged

__all__ = ["GgufMetadata", "GgufValue"]

GgufValue: TypeAlias = bool | int | float | str | list[str] | NDArray[Any]
"""A metadata value; an array of numbers or booleans is numpy's, and a view of the file."""


class GgufMetadata:
    """Values by key. A key of another type than asked for is damage, and named."""

    def __init__(self, path: Path, values: Mapping[str, GgufValue]) -> None:
        self.path = path
        self._values = values

    def keys(self) -> tuple[str, ...]:
        """Every key, in the file's order."""
        return tuple(self._values)

    def plain(self, key: str) -> bool | int | float | str | list[Any] | None:
        """The value as JSON would have it, or None."""
        value = self._values.get(key)
        return cast("list[Any]", value.tolist()) if isinstance(value, np.ndarray) else value

    def text(self, key: str) -> str | None:
        """A text, or None."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            self._refuse(key, "a text")
        return value

    def texts(self, key: str) -> list[str] | None:
        """A list of texts, or None."""
        value = self._values.get(key)
        if isinstance(value, np.ndarray) and not value.size:
            return []
        if value is not None and not isinstance(value, list):
            self._refuse(key, "a list of texts")
        return value

    def natural(self, key: str) -> int | None:
        """An integer that is not negative, or None."""
        value = self._values.get(key)
        if value is not None and (type(value) is not int or value < 0):
            self._refuse(key, "an integer that is not negative")
        return value

    def flag(self, key: str) -> bool | None:
        """A boolean, or None."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            self._refuse(key, "a boolean")
        return value

    def numbers(self, key: str, count: int) -> NDArray[Any] | None:
        """An array of so many numbers, or None."""
        value = self._values.get(key)
        if value is not None and not (isinstance(value, np.ndarray) and value.shape == (count,)):
            self._refuse(key, f"an array of {count} numbers")
        return value

    def _refuse(self, key: str, wanted: str) -> NoReturn:
        raise CheckpointDamaged(self.path, 0, f"metadata key {key} must be {wanted}")
