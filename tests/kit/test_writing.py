"""The pages for plugin authors: each builds a plugin, and we follow it word by word."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import Command, File, Follower, steps_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("dialect", "auth-source", "backend", "policy")


def page(name: str) -> str:
    (path,) = (ROOT / "docs").glob(f"writing-a*-{name}.md")
    return path.read_text(encoding="utf-8")


@pytest.mark.torch
@pytest.mark.parametrize("name", PAGES)
def test_a_page_builds_a_plugin_that_passes_its_contract_and_is_served(name: str, tmp_path: Path) -> None:
    steps = steps_of(page(name))
    with Follower(tmp_path) as follower:
        follower.follow(steps)
    commands = [step.line for step in steps if isinstance(step, Command)]
    assert any(line.startswith("tensorfold check ") for line in commands)
    assert any(" serve " in line and line.endswith("&") for line in commands)


@pytest.mark.parametrize("name", PAGES)
def test_a_pages_plugin_can_be_built_and_its_tests_pass(name: str, tmp_path: Path) -> None:
    """As a wheel, which holds its module and its entry point."""
    files = [step for step in steps_of(page(name)) if isinstance(step, File)]
    with Follower(tmp_path) as follower:
        follower.follow(files)
    (project,) = tmp_path.glob("*/pyproject.toml")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=project.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list((project.parent / "dist").glob("*.whl"))) == 1
    if (tests := project.parent / "tests").is_dir():
        environment = {**os.environ, "PYTHONPATH": str(project.parent / "src"), "PYTEST_ADDOPTS": ""}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "--rootdir", str(tests), str(tests)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


def test_every_page_for_plugin_authors_is_followed() -> None:
    """But that of models, whose plugin is tested as a distribution of its own."""
    found = {path.stem for path in (ROOT / "docs").glob("writing-a*-*.md")}
    assert found == {
        "writing-a-dialect",
        "writing-an-auth-source",
        "writing-a-backend",
        "writing-a-policy",
        "writing-a-model",
    }
