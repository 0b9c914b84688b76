"""The command line of `tensorfold pull`."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext

import click

from tensorfold.cli.early import Launch

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
        from tensorfold_extra_checkpoints.showing import Bars, Lines

        launch = click.get_current_context().find_object(Launch)
        families = () if launch is None else [offered.value for offered in launch.plugins.families()]
        environment = os.environ if launch is None else launch.environment
        with Bars.shown() if sys.stderr.isatty() else nullcontext(Lines()) as display:
            path = Pull(environment, families, display).run(name, revision, files)
        click.echo(path)

    return pull
