"""What a plugin may be tried with: the answers to `tensorfold_examples`, which `tensorfold check` alone asks for.

Backends, scheduling policies, filters and observers need none; an example of a backend says what it promises.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tensorfold.contracts.backend import BackendSettings

__all__ = ["AuthExample", "BackendExample", "DialectExample", "Example", "FamilyExample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DialectExample:
    """Small valid bodies, by the path of their endpoint."""

    dialect: str
    """Its name."""
    bodies: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """For each endpoint one that asks for a whole answer."""
    stream_bodies: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """For each endpoint that streams one that asks for a stream."""
    inquiry_bodies: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """For each inquiry one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthExample:
    """Settings with which a source guards, and keys that it then accepts."""

    source: str
    """Its name."""
    accepted: Mapping[str, str]
    """Keys, each with the label of its principal; one at least."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Values that differ from the defaults, by table and name (`{"auth.acme": {"password": "open sesame"}}`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyExample:
    """A tiny checkpoint, whose weights are random.

    Its vocabulary has 64 ids or more, its window 128 positions or more, and the width of a head is a few numbers.
    """

    family: str
    """Its name."""
    config: Mapping[str, Any]
    """What its config.json holds."""
    tensors: Mapping[str, tuple[int, ...]] | None = None
    """The shape of every tensor, by name; None: those that the family asks for, which then all have a `shape`."""
    refused: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Config keys, each with a value that the family must refuse by naming the key."""
    steering: tuple[str, ...] = ()
    """Patterns of tensors whose values decide how the model is built: these alone are read before all is known to fit."""
    name: str = "tiny"
    """Tells several examples of one family apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendExample:
    """What a backend promises."""

    backend: str
    """Its name."""
    tolerance: float
    """Largest error against float64, as a share of the largest right value of the row (or of 1 when that is less)."""
    settings: BackendSettings = field(default_factory=BackendSettings)
    """What it is opened with."""


Example: TypeAlias = DialectExample | AuthExample | FamilyExample | BackendExample
