"""Commands that plugins add, beside ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import click

from tensorfold.errors import PluginConflict
from tensorfold.plugins import Plugins

__all__ = ["foreign_commands"]


def foreign_commands(plugins: Plugins, under: Literal["", "bench"], ours: Iterable[str]) -> dict[str, click.Command]:
    """Those of one group, by name.

    Args:
        ours: names that are taken.

    Raises:
        PluginConflict: a name is claimed twice.
    """
    owners = dict.fromkeys(ours, "tensorfold itself")
    commands: dict[str, click.Command] = {}
    for offered in plugins.commands():
        command = offered.value.command
        if offered.value.under != under or (name := command.name) is None:
            continue
        owner = owners.setdefault(name, str(offered.plugin))
        if owner != str(offered.plugin) or name in commands:
            full = " ".join(filter(None, ("tensorfold", under, name)))
            raise PluginConflict(f"{owner} and {offered.plugin} both claim the command {full}")
        commands[name] = command
    return commands
