"""`tensorfold completion`: what a shell needs to complete command lines."""

from __future__ import annotations

import click

from tensorfold.cli.early import Launch

__all__ = ["VARIABLE", "command"]

VARIABLE = "_TENSORFOLD_COMPLETE"
"""Which the shell's script sets when it asks."""

_HOW = {
    "bash": 'eval "$(tensorfold completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(tensorfold completion zsh)"  # in ~/.zshrc',
    "fish": "tensorfold completion fish > ~/.config/fish/completions/tensorfold.fish",
}


def command(launch: Launch) -> click.Command:
    """The command."""
    how = "\n\n".join(["\b", *_HOW.values()]).replace("\n\n", "\n")

    @click.command("completion", help=f"Print the script that completes commands and options in a shell.\n\n{how}")
    @click.argument("shell", type=click.Choice(sorted(_HOW)))
    def completion(shell: str) -> None:
        from click.shell_completion import get_completion_class

        from tensorfold.cli.program import Program

        made = get_completion_class(shell)
        if made is None:
            raise click.ClickException(f"this version of click completes nothing in {shell}")
        click.echo(made(Program(launch), {}, "tensorfold", VARIABLE).source())

    return completion
