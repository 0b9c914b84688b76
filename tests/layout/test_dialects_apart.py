"""The dialects stand alone: one that is left out is not even imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

EVERY = ("anthropic", "decisions", "llamacpp", "ollama", "openai", "vllm")

CODE = """
import json, sys
from tensorfold.contracts.settings import PluginSettings
from tensorfold.plugins import Plugins, Wanted

offered = Plugins(Wanted(dialects=tuple(json.loads(sys.argv[1])))).dialects(PluginSettings({}))
modules = {name.partition(".")[0] for name in sys.modules if name.startswith("tensorfold_dialect_")}
print(json.dumps([[each.value.name for each in offered], sorted(modules)]))
"""


def loaded(*wanted: str) -> Sequence[Any]:
    """The dialects' names and the packages that were imported for them, in a process of its own."""
    command = [sys.executable, "-c", CODE, json.dumps(wanted)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", EVERY)
def test_a_dialect_that_is_left_out_is_not_imported(name: str) -> None:
    assert loaded(name) == [[name], [f"tensorfold_dialect_{name}"]]


def test_every_dialect_is_on_by_default() -> None:
    names, _ = loaded()
    assert set(EVERY) <= set(names)
