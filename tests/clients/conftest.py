"""Coding agents as their users install them: hundreds of megabytes from npm, so only where they are asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[[str, str], Path]
"""Package (with its version) and program, to the program's path."""


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Install:
    """Installs a package with npm; skips where that is not asked for or not there."""
    if not os.environ.get("TENSORFOLD_TEST_NPM"):
        pytest.skip("TENSORFOLD_TEST_NPM is not set")
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")

    def install(package: str, program: str) -> Path:
        folder = tmp_path_factory.mktemp("npm")
        subprocess.run([npm, "install", "--no-audit", "--no-fund", package], cwd=folder, check=True, timeout=600)
        return folder / "node_modules" / ".bin" / program

    return install


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder to work in, with one file."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "note.txt").write_text("wombat\n")
    return folder
