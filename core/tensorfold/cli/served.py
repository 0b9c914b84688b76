"""What of a checkpoint's capabilities the server has."""

from __future__ import annotations

from typing import Final

from tensorfold.contracts.family import Geometry

__all__ = ["served"]

_NOT_SERVED: Final = frozenset({"vision"})
"""Requests hold no images, so the towers that would see them are left."""


def served(geometry: Geometry) -> frozenset[str]:
    """Those that a client may count on."""
    return geometry.capabilities - _NOT_SERVED
