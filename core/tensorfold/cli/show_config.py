"""`tensorfold config`: what `tensorfold serve` would use, and who said so."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tensorfold.cli.early import Launch
from tensorfold.cli.options import SettingsCommand
from tensorfold.config import ServeConfig, core_table

__all__ = ["command"]


def command(launch: Launch) -> click.Command:
    """The command, with every flag of `tensorfold serve`."""

    def show(config: ServeConfig) -> None:
        for table in (core_table(), *launch.tables):
            click.echo(f"[{table.name}]" if table.name else f"# {_file(launch)}")
            for setting in table.settings:
                value = _value(config, table.name, setting.name)
                shown = '"..."' if setting.secret and value else _toml(value)
                origin = config.origins[f"{table.name}.{setting.name}".lstrip(".")]
                click.echo(f"{setting.name} = {shown}  # {origin}")
        for warning in config.warnings:
            click.echo(f"warning: {warning}", err=True)

    return SettingsCommand(
        "config", launch, show, help="Show every setting that `tensorfold serve` would use, and who said it."
    )


def _file(launch: Launch) -> str:
    return "no tensorfold.toml" if launch.file is None else str(launch.file.path)


def _value(config: ServeConfig, table: str, name: str) -> object:
    return config.settings.table(table)[name] if table else getattr(config, name)


def _toml(value: object) -> str:
    """The value as TOML would have it; None, which TOML has no word for, as a comment would say it."""
    match value:
        case None:
            return "(not set)"
        case Path():
            return json.dumps(str(value))
        case _:
            return json.dumps(value)
