"""The repository, for the tests that hold its lists equal to its tree."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's own folder."""
    return Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def project(root: Path) -> dict[str, Any]:
    """`pyproject.toml`."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def plugins(root: Path) -> dict[str, list[str]]:
    """The plugin packages in the tree, by kind."""
    kinds = sorted(path for path in (root / "plugins").iterdir() if path.is_dir())
    return {
        kind.name: sorted(path.name for path in kind.iterdir() if path.is_dir() and path.name != "__pycache__")
        for kind in kinds
    }
