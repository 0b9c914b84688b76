"""Installed plugins, found by their entry points: the group tells the kind, so that nothing is imported to learn it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Literal, TypeAlias, get_args

__all__ = ["GROUPS", "KINDS", "FolderModule", "Found", "Kind", "find_installed", "is_id"]

Kind: TypeAlias = Literal["models", "dialects", "backends", "auth", "extras"]
"""What a plugin mainly offers; it may answer any hook."""
KINDS: tuple[Kind, ...] = get_args(Kind)

OPTIONAL_DIALECTS = "tensorfold.dialects.optional"
"""The group of dialects that are off until asked for (those that manage the server)."""
GROUPS: tuple[tuple[str, Kind], ...] = (
    *((f"tensorfold.{kind}", kind) for kind in KINDS),
    (OPTIONAL_DIALECTS, "dialects"),
)
"""Every group of entry points, and the kind that it tells."""


@dataclass(frozen=True, slots=True)
class FolderModule:
    """A module of a folder that is not installed."""

    root: Path
    """What has to stand on `sys.path`."""
    module: str


@dataclass(frozen=True, slots=True)
class Found:
    """A plugin that could be imported."""

    kind: Kind
    name: str
    source: EntryPoint | FolderModule | Path | str
    """How to import it: an entry point, a module of a folder, a file, or a module's name."""
    distribution: str
    """Who ships it; for a module or file without a distribution, that module or file."""
    version: str = ""
    on: bool = True
    """Whether it loads when nobody asks for it."""

    @property
    def id(self) -> str:
        """`KIND/NAME`, unique among loaded plugins."""
        return f"{self.kind}/{self.name}"

    @property
    def module(self) -> str:
        """The module's name; empty for a file."""
        match self.source:
            case EntryPoint() | FolderModule():
                return self.source.module
            case Path():
                return ""
            case str():
                return self.source

    @property
    def origin(self) -> str:
        """The distribution and its version."""
        return f"{self.distribution} {self.version}".rstrip()

    def __str__(self) -> str:
        return f"{self.id} ({self.origin})"


def is_id(text: str) -> bool:
    """Whether this is `KIND/NAME`."""
    kind, slash, name = text.partition("/")
    return bool(slash and name) and kind in KINDS and not name.endswith(".py")


def find_installed() -> tuple[Found, ...]:
    """Every plugin that an installed distribution offers, sorted by id and distribution.

    `entry_points()` and not `distributions()`: it drops the duplicate that a stray egg-info makes.
    """
    found: list[Found] = []
    for group, kind in GROUPS:
        for entry in entry_points(group=group):
            distribution, version = (entry.dist.name, entry.dist.version) if entry.dist else (entry.module, "")
            on = group != OPTIONAL_DIALECTS
            found.append(Found(kind, entry.name, entry, distribution, version, on))
    return tuple(sorted(found, key=lambda each: (each.id, each.distribution)))
