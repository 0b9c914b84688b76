"""Commands that plugins add to the `tensorfold` program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import click

__all__ = ["Command"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command, `tensorfold NAME`, or `tensorfold bench NAME`."""

    command: click.Command
    """Its name must be free; a clash stops the program and names both distributions."""
    under: Literal["", "bench"] = ""
    """The group that it stands in: the program's own commands, or the measurements."""
