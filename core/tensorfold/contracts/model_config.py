"""A checkpoint's config, read one typed key at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast, overload

from tensorfold.errors import CheckpointUnsupported

__all__ = ["ModelConfig"]

T = TypeVar("T", bool, int, float, str)

_NAMES = {bool: "a boolean", int: "an integer", float: "a number", str: "a text"}
_LARGEST = 1 << 48
"""Of integers: far beyond any model, and within what shapes are computed in."""
_MOST_LAYERS = 10_000
"""A hundred times what the deepest models have."""


class _Missing:
    """No default was given."""


_MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """`config.json` (or what a GGUF's metadata says, under the same keys), with errors that name the key."""

    values: Mapping[str, Any]
    """The parsed object."""
    generation: Mapping[str, Any]
    """`generation_config.json`; empty when there is none."""
    where: str
    """The file, for messages."""
    path: str = ""
    """The key path of a section, with its trailing dot."""

    @overload
    def get(self, type: type[T], key: str) -> T: ...
    @overload
    def get(self, type: type[T], key: str, default: T) -> T: ...
    @overload
    def get(self, type: type[T], key: str, default: None) -> T | None: ...

    def get(self, type: type[T], key: str, default: T | _Missing | None = _MISSING) -> T | None:
        """The value of a key, checked; a missing or null one is the default.

        Raises:
            CheckpointUnsupported: the key is missing and has no default, or its value has another type.
        """
        value = self.values.get(key)
        if value is None:
            if isinstance(default, _Missing):
                raise CheckpointUnsupported(f"{self.where} has no {self.path}{key}")
            return default
        if type is float and isinstance(value, int | float) and not isinstance(value, bool):
            return type(self._finite(key, value))
        if not isinstance(value, type) or (type is int and isinstance(value, bool)):
            raise CheckpointUnsupported(f"{self.where}: {self.path}{key} is {value!r}, and must be {_NAMES[type]}")
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise CheckpointUnsupported(f"{self.where}: {self.path}{key} is {value}, and must be at most {_LARGEST}")
        return value

    def _finite(self, key: str, value: float) -> float:
        # An integer may have more digits than a float has room for.
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise CheckpointUnsupported(f"{self.where}: {self.path}{key} is {value!r}, and must be a finite number")
        return number

    def positive(self, key: str, default: int | None = None) -> int:
        """An integer of at least 1."""
        value = self.get(int, key) if default is None else self.get(int, key, default)
        if value < 1:
            raise CheckpointUnsupported(f"{self.where}: {self.path}{key} is {value}, and must be at least 1")
        return value

    def layers(self) -> int:
        """How many there are. Each is built, so that a number which no model has would never end."""
        value = self.positive("num_hidden_layers")
        if value > _MOST_LAYERS:
            raise CheckpointUnsupported(
                f"{self.where}: {self.path}num_hidden_layers is {value}, and must be at most {_MOST_LAYERS}"
            )
        return value

    def require(self, key: str, *allowed: str | bool | int | None) -> None:
        """Refuse a checkpoint that asks for another value than those that are run; None allows a missing key.

        Raises:
            CheckpointUnsupported: naming the key and the values that are run.
        """
        value = self.values.get(key)
        if value not in allowed:
            run = ", ".join(repr(each) for each in allowed)
            raise CheckpointUnsupported(f"{self.where}: {self.path}{key} is {value!r}, and only {run} is run")

    def section(self, key: str) -> ModelConfig | None:
        """A nested object, or None."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise CheckpointUnsupported(f"{self.where}: {self.path}{key} must be an object")
        return ModelConfig(cast("Mapping[str, Any]", value), self.generation, self.where, f"{self.path}{key}.")

    def ids(self, key: str, source: Literal["config", "generation"] = "config") -> tuple[int, ...]:
        """Token ids given as one integer, a list of them, or not at all."""
        value = (self.values if source == "config" else self.generation).get(key)
        many: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in many):
            raise CheckpointUnsupported(f"{self.where}: {self.path}{key} is {value!r}, and must be token ids")
        return tuple(many)

    @property
    def model_type(self) -> str:
        """The architecture's name, empty when the config has none."""
        return self.get(str, "model_type", "")

    @property
    def architectures(self) -> tuple[str, ...]:
        """The class names that the config gives."""
        value = self.values.get("architectures")
        return (
            tuple(each for each in cast("list[Any]", value) if isinstance(each, str)) if isinstance(value, list) else ()
        )
