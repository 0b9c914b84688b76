"""Every hook is documented, asked and tested."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import FunctionType

import pytest

from tensorfold import hookspecs
from tensorfold.plugins import catalog, loading

HOOKS = sorted(
    name
    for name, value in vars(hookspecs).items()
    if isinstance(value, FunctionType) and name.startswith("tensorfold_")
)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_asks_a_question_in_its_docstring(hook: str) -> None:
    question = (getattr(hookspecs, hook).__doc__ or "").split("\n\n")[0]
    assert "?" in question


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_has_a_section_with_its_signature_in_the_docs(hook: str, root: Path) -> None:
    page = (root / "docs" / "hooks.md").read_text(encoding="utf-8")
    arguments = ", ".join(inspect.signature(getattr(hookspecs, hook)).parameters)
    section = page.partition(f"## {hook}\n")[2].partition("\n## ")[0]
    for argument in arguments.split(", "):
        assert argument in section
    assert f"def {hook}(" in section


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_asked_in_one_place_and_tested(hook: str, root: Path) -> None:
    assert inspect.getsource(loading).count(f'"{hook}"') >= 1
    assert f'"{hook}"' not in inspect.getsource(catalog)
    tests = (root / "tests").rglob("test_*.py")
    assert any(f"def {hook}(" in path.read_text(encoding="utf-8") for path in tests), hook
