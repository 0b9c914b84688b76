"""What is imported often stays cheap, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "mlx", "transformers", "numba", "falcon", "uvicorn", "openai", "gguf")


@pytest.mark.parametrize(
    ("module", "also"),
    [
        ("tensorfold", ("numpy", "click", "msgspec")),
        ("tensorfold.pytest_plugin", ("numpy", "click", "msgspec")),
        ("tensorfold.plugins", ("numpy",)),
        ("tensorfold.config", ("numpy",)),
        ("tensorfold.cli.program", ("numpy", "rich", "structlog")),
        ("tensorfold.hookspecs", ("numpy",)),
        ("tensorfold.contracts.dialect", ("numpy",)),
        ("tensorfold.contracts.backend", ("numpy",)),
        ("tensorfold.engine", ()),
        ("tensorfold.checkpoint.open", ()),
    ],
)
def test_a_module_of_the_core_imports_nothing_heavy(module: str, also: tuple[str, ...]) -> None:
    names = (*HEAVY, *also)
    code = f"import sys, {module}; print([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_no_plugin_imports_a_library_of_a_backend_before_it_is_asked() -> None:
    code = (
        "import sys; from tensorfold.plugins import Plugins, Wanted; "
        "plugins = Plugins(Wanted()); plugins.settings(), plugins.commands(), plugins.families(), plugins.backends(); "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
