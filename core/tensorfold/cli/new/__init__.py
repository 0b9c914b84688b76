"""`tensorfold new`: the folder of a plugin that passes its contract at once and is served as it is."""

from __future__ import annotations

from pathlib import Path

import click

from tensorfold.cli.early import Launch
from tensorfold.cli.new.writing import KINDS, write_plugin

__all__ = ["command"]


def command(launch: Launch) -> click.Command:
    """The command."""

    @click.command(
        "new",
        help="Write the folder of a plugin: a dialect, an auth source or a model family that passes its contract and "
        "can be served at once. NAME has small letters, digits and underscores.",
    )
    @click.argument("kind", type=click.Choice(KINDS))
    @click.argument("name")
    @click.option(
        "--into",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the folder is made; by default in the current one.",
    )
    def new(kind: str, name: str, into: Path | None) -> None:
        written = write_plugin(kind, name, into or Path())
        click.echo(f"{written.folder} is written. Next:\n")
        for line in written.next:
            click.echo(f"  {line}")

    return new
