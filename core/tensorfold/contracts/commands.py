"""Commands that plugins add to the `tensorfold` program."""

from __future__ import annotations

from dataclasses import dataclass

import click

__all__ = ["Command"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command, `tensorfold NAME`."""

    command: click.Command
    """Its name must be free; a clash stops the program and names both distributions."""
