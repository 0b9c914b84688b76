"""`tensorfold check`: the contracts that fit a plugin, one line a claim."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from tensorfold.cli.early import Launch
from tensorfold.errors import ConfigError
from tensorfold.plugins import Plugins, Wanted, find_installed

__all__ = ["command"]

_TESTS = """\
from tensorfold.testing.checking import contracts_of

globals().update(contracts_of({plugin!r}))
"""


def command(launch: Launch) -> click.Command:
    """The command."""

    @click.command(
        "check",
        help="Hold PLUGIN against the contracts that fit what it offers: a folder, a .py file, a module, KIND/NAME of "
        "an installed plugin, or a distribution. Each claim is a line; the exit code is 1 when one does not hold.",
    )
    @click.argument("plugin")
    def check(plugin: str) -> int:
        return check_plugin(_named(plugin))

    return check


def check_plugin(plugin: str) -> int:
    """Run the contracts in a process of their own, so that a plugin that crashes takes nothing with it.

    Raises:
        ConfigError: pytest is not installed.
        PluginError: there is no such plugin, or it cannot be loaded.
    """
    if importlib.util.find_spec("pytest") is None:
        raise ConfigError("tensorfold check runs the contracts with pytest: pip install 'tensorfold[kit]'")
    _load(plugin)
    with tempfile.TemporaryDirectory(prefix="tensorfold-check-") as folder:
        tests = Path(folder) / "test_contracts.py"
        tests.write_text(_TESTS.format(plugin=plugin), encoding="utf-8")
        (Path(folder) / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "tensorfold.testing.claims", "-p", "no:cacheprovider"]
        command += [
            "-qq",
            "--tb=no",
            "-rN",
            "--import-mode=importlib",
            "-W",
            "ignore",
            "-c",
            str(tests.with_name("pytest.ini")),
        ]
        ended = subprocess.call([*command, str(tests)], env={**os.environ, "PYTEST_ADDOPTS": ""})
    return min(ended, 1)


def _named(plugin: str) -> str:
    """A path in full, so that it means the same wherever the contracts run."""
    path = Path(os.path.expanduser(plugin))
    return str(path.resolve()) if path.exists() and (path.suffix == ".py" or path.is_dir()) else plugin


def _load(plugin: str) -> None:
    """Tell at once, and in one line, what cannot be loaded."""
    theirs = tuple(each.id for each in find_installed() if each.distribution == plugin)
    Plugins(Wanted(plugins=theirs or (plugin,)))
