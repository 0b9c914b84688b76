"""A parsed JSON value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["JSON"]

if TYPE_CHECKING:
    JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None
    """A parsed JSON value."""
else:
    # msgspec cannot resolve an alias that refers to itself; any JSON value is what it decodes to.
    JSON = Any
