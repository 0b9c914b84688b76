"""How far a download is, on stderr: bars on a terminal that is ours alone, else lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Bars", "Lines"]

MB: Final = 1_000_000
LARGE: Final = 100 * MB
"""Bytes of a file from which lines also tell each tenth of it."""


class Lines:
    """Implements `pull.Display`."""

    def begin(self, path: str, size: int) -> Callable[[int], None]:
        """One line, and for a large file one more for each tenth."""
        self.say(f"downloading {path}, {size / MB:,.1f} MB")
        told = 0

        def progress(there: int) -> None:
            nonlocal told
            if size >= LARGE and (tenths := 10 * there // size) > told:
                told = tenths
                self.say(f"{path}: {10 * tenths} %")

        return progress

    def say(self, text: str) -> None:
        """A line for the user."""
        click.echo(text, err=True)


class Bars:
    """Implements `pull.Display`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    @staticmethod
    @contextmanager
    def shown() -> Generator[Bars]:
        """On the terminal, as long as the block lasts."""
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, TimeRemainingColumn(), console=Console(file=sys.stderr)) as progress:
            yield Bars(progress)

    def begin(self, path: str, size: int) -> Callable[[int], None]:
        """A bar."""
        task = self._progress.add_task(path, total=size)
        return lambda there: self._progress.update(task, completed=there)

    def say(self, text: str) -> None:
        """A line above the bars."""
        self._progress.console.print(text, highlight=False, markup=False)
