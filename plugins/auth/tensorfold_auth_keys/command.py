"""`tensorfold keys`: make a key, see whose there are, take one away. The file holds digests; a key is shown once."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import click

from tensorfold.cli.early import Launch
from tensorfold.errors import ConfigError
from tensorfold_auth_keys.key_file import add_key, labels_of, remove_key

__all__ = ["keys_command"]

PREFIX = "tf-"
BYTES = 32
"""Of a key's randomness."""


def keys_command() -> click.Group:
    """The group of commands."""
    file = click.Option(
        ["--file"],
        type=click.Path(path_type=Path),
        help="The key file; by default the one that the server's settings name.",
    )
    label = click.Argument(["label"])
    group = click.Group("keys", help="Make keys for callers, list their labels, take them away.")
    group.add_command(
        click.Command(
            "new",
            help="Make a key, print it this once, and store its digest under LABEL. A running server knows it within a "
            "second.",
            params=[label, file],
            callback=_new,
        )
    )
    group.add_command(click.Command("list", help="Print the labels of a key file.", params=[file], callback=_list))
    group.add_command(
        click.Command(
            "remove",
            help="Take away the keys of LABEL. A running server refuses them within a second.",
            params=[label, file],
            callback=_remove,
        )
    )
    return group


def _new(label: str, file: Path | None) -> None:
    path = _path(file)
    key = PREFIX + secrets.token_urlsafe(BYTES)
    add_key(path, label, key)
    # The key alone on stdout, so that a script can catch it.
    click.echo(f"the key of {label}, which is shown this once; {path} holds its digest:", err=True)
    click.echo(key)
    click.echo(f"serve with --api-key-file {path}", err=True)


def _list(file: Path | None) -> None:
    for label in labels_of(_path(file)):
        click.echo(label)


def _remove(label: str, file: Path | None) -> None:
    path = _path(file)
    left = remove_key(path, label)
    click.echo(f"{label} is taken out of {path}", err=True)
    if not left:
        click.echo(f"{path} holds no keys any more: a server that reads it lets nobody in", err=True)


def _path(given: Path | None) -> Path:
    if given is not None:
        return Path(os.path.expanduser(given)).absolute()
    from tensorfold_auth_keys import TABLE

    launch = click.get_current_context().find_object(Launch)
    named = None if launch is None else launch.config({}).settings.table(TABLE)["api_key_file"]
    if named is None:
        raise ConfigError("which file? Give --file PATH, or set api_key_file in [auth.keys] of tensorfold.toml")
    return Path(named).absolute()
