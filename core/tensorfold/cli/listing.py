"""`tensorfold plugins`: every plugin, whose it is, and what became of it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from tensorfold.cli.early import Launch
from tensorfold.plugins import PluginState

__all__ = ["command"]

_HEAD = ("plugin", "distribution", "version", "state", "reason")


def command(launch: Launch) -> click.Command:
    """The command."""

    @click.command("plugins", help="List every plugin with its distribution, version, state and reason.")
    @click.option("--json", "as_json", is_flag=True, help="As a JSON list.")
    def plugins(as_json: bool) -> None:
        # Some plugins find out only when they are asked that their library is missing.
        launch.plugins.backends()
        states = launch.plugins.states
        if as_json:
            click.echo(json.dumps([asdict(state) for state in states], indent=2))
        else:
            click.echo("\n".join(_lines(states)))

    return plugins


def _lines(states: tuple[PluginState, ...]) -> list[str]:
    rows = [
        _HEAD,
        *((f"{each.kind}/{each.name}", each.distribution, each.version, each.state, each.reason) for each in states),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
