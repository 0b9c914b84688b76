"""Tiny checkpoints, and a family that reads them, shared by this folder's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorfold.testing.tiny import TinyModel, write_tiny
from tensorfold.testing.tiny_gguf import write_tiny_gguf

SMALLEST = TinyModel(hidden=32, layers=1, heads=2, kv_heads=1, width=32, seed=11)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that nobody may change."""
    return write_tiny(tmp_path_factory.mktemp("tiny"), SMALLEST)


@pytest.fixture(scope="session")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that nobody may change."""
    return write_tiny_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", SMALLEST, type="Q8_0")
