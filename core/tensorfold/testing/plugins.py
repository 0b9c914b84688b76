"""What every plugin has to pass, whatever it offers: subclass `PluginContract` and name the plugin.

class TestPlugin(PluginContract):
    plugin = "tensorfold_dialect_acme"
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import ClassVar, TypeVar

import pytest

from tensorfold.config import load_config
from tensorfold.contracts.settings import PluginSettings
from tensorfold.errors import TensorfoldError
from tensorfold.plugins import Catalog, Found, Offered, Plugins, Wanted, find_installed
from tensorfold.plugins.choosing import choose

__all__ = ["PluginContract", "Target", "default_settings"]

T = TypeVar("T")

HEAVY = ("torch", "mlx", "numba", "transformers")
"""What takes seconds to import, and belongs to whoever opens a model."""

_ASK = """
import sys
from tensorfold.testing.plugins import Target, default_settings
plugins = Target({name!r}).plugins()
settings = default_settings(plugins)
for ask in (plugins.families, plugins.backends, plugins.commands, plugins.examples):
    ask()
for ask in (plugins.dialects, plugins.auth_sources, plugins.policies, plugins.filters, plugins.observers):
    ask(settings)
print(*[name for name in {heavy!r} if name in sys.modules])
"""


class Target:
    """One plugin, or all of one distribution, beside what is installed."""

    def __init__(self, name: str) -> None:
        """`name`: a module, a `.py` file, a folder, `KIND/NAME`, or a distribution.

        Raises:
            PluginError: there is no such plugin.
        """
        self.name = name
        installed = find_installed()
        theirs = [each.id for each in installed if each.distribution == name]
        self.wanted = Wanted(plugins=tuple(theirs) or (name,))
        self._mine = {choice.found for choice in choose(installed, self.wanted) if choice.asked}

    def plugins(self) -> Plugins:
        """Everything that is installed, and the target."""
        return Plugins(self.wanted)

    def owns(self, found: Found) -> bool:
        """Whether a plugin is the target's."""
        return found in self._mine

    def offers(self, offered: Sequence[Offered[T]]) -> list[T]:
        """Which of these answers are the target's."""
        return [each.value for each in offered if self.owns(each.plugin)]


def default_settings(plugins: Plugins) -> PluginSettings:
    """The settings of all plugins where nobody sets anything."""
    return load_config([offered.value for offered in plugins.settings()], None, {}, {}).settings


class PluginContract:
    """Subclass it as `TestSomething` and set the plugin."""

    plugin: ClassVar[str]
    """A module, a `.py` file, a folder, `KIND/NAME`, or a distribution."""

    def test_asking_it_imports_nothing_heavy(self) -> None:
        """`tensorfold --help` asks plugins too, and must stay quick.

        Fix: import heavy libraries inside the functions that need them.
        """
        code = _ASK.format(name=self.plugin, heavy=HEAVY)
        done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr.strip().splitlines()[-1]
        assert done.stdout.split() == [], "they are imported as soon as the plugin is asked"

    def test_it_stands_beside_all_that_is_installed(self) -> None:
        """No name, path or architecture is claimed by another plugin too.

        Fix: choose another name; the message says whose it is.
        """
        plugins = Target(self.plugin).plugins()
        try:
            Catalog.of(plugins, default_settings(plugins))
        except TensorfoldError as error:
            pytest.fail(str(error), pytrace=False)

    def test_its_settings_are_described(self) -> None:
        """Each has a sentence for `--help`, and a secret never stands in `tensorfold.toml`.

        Fix: end each `help` with a full stop; give secrets `toml=False` and an `env`.
        """
        target = Target(self.plugin)
        for offered in target.plugins().settings():
            if target.owns(offered.plugin):
                for setting in offered.value.settings:
                    assert setting.help.endswith("."), setting.name
                    assert not (setting.secret and setting.toml), setting.name
                    assert setting.toml or setting.flag or setting.env, f"nothing sets {setting.name}"

    def test_its_commands_say_what_they_do(self) -> None:
        """Each has a name and a help text.

        Fix: give the click command a `help`.
        """
        target = Target(self.plugin)
        for offered in target.plugins().commands():
            if target.owns(offered.plugin):
                assert offered.value.command.name
                assert offered.value.command.help, offered.value.command.name
