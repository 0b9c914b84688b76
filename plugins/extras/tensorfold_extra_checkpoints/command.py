"""The command line of `tensorfold pull`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import click

from tensorfold.cli.early import Launch

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["pull_command"]


def pull_command() -> click.Command:
    """The command."""

    @click.command(
        "pull",
        help="Download ORG/NAME from the Hugging Face Hub into its cache and print where it is. A download that was "
        "broken off goes on where it stopped; every file is checked against the Hub's digest; a model that cannot be "
        "run here is refused before its weights are downloaded. HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_CACHE are "
        "what they are for all of the Hub's programs.",
    )
    @click.argument("name")
    @click.option("--revision", default="main", show_default=True, help="A branch, a tag or a commit.")
    @click.option("--file", "files", multiple=True, help="Only files of this name or pattern: *Q8_0.gguf.")
    def pull(name: str, revision: str, files: tuple[str, ...]) -> None:
        # Imported here, since every command asks for this plugin's commands.
        from tensorfold_extra_checkpoints.pull import Pull

        launch = click.get_current_context().find_object(Launch)
        families = () if launch is None else [offered.value for offered in launch.plugins.families()]
        environment = os.environ if launch is None else launch.environment
        progress = _progress() if sys.stderr.isatty() else None
        with progress or nullcontext():
            path = Pull(environment, families, _Shown(progress)).run(name, revision, files)
        click.echo(path)

    return pull


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(file=sys.stderr))


class _Shown:
    """Implements `pull.Display`: bars on a terminal, elsewhere one line a file."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress

    def begin(self, path: str, size: int) -> Callable[[int], None]:
        """A file begins."""
        progress = self._progress
        if progress is None:
            self.say(f"downloading {path}, {size / 1e6:,.1f} MB")
            return lambda there: None
        task = progress.add_task(path, total=size)
        return lambda there: progress.update(task, completed=there)

    def say(self, text: str) -> None:
        """A line for the user."""
        if self._progress is None:
            click.echo(text, err=True)
        else:
            self._progress.console.print(text, highlight=False, markup=False)
