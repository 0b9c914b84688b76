"""The key that our own clients show to a server."""

from __future__ import annotations

import click

__all__ = ["key_option"]


def key_option() -> click.Option:
    """`--key`, which a variable gives better: command lines show in the process list."""
    return click.Option(
        ["--key"],
        envvar="TENSORFOLD_CLIENT_KEY",
        help="The server's key; better given in TENSORFOLD_CLIENT_KEY.",
    )
