"""The program: its commands, ours and the plugins', and how it fails: one line, exit code 2, no traceback."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import cast

import click

from tensorfold.cli.early import Launch, take_early
from tensorfold.cli.foreign import foreign_commands
from tensorfold.cli.null_device import silence
from tensorfold.errors import TensorfoldError

__all__ = ["Program", "run"]

_OURS = {
    "serve": "tensorfold.cli.serve",
    "chat": "tensorfold.cli.chat",
    "bench": "tensorfold.cli.bench",
    "models": "tensorfold.cli.models",
    "inspect": "tensorfold.cli.inspect_request",
    "replay": "tensorfold.cli.replay",
    "info": "tensorfold.cli.info",
    "plugins": "tensorfold.cli.listing",
    "config": "tensorfold.cli.show_config",
    "check": "tensorfold.cli.check",
    "new": "tensorfold.cli.new",
    "doctor": "tensorfold.cli.doctor",
    "service": "tensorfold.cli.service",
    "completion": "tensorfold.cli.completion_script",
}
"""Each module has a function `command(launch) -> click.Command`."""


class Program(click.Group):
    """`tensorfold`. Commands are made when they are asked for, since a plugin may add to them."""

    def __init__(self, launch: Launch) -> None:
        super().__init__(
            name="tensorfold",
            help="Serve local language models through the APIs that their clients already speak.",
            epilog="Options that hold for every command: --config PATH, --plugin, --dialect, --backend.",
            params=[click.Option(["--version"], is_flag=True, is_eager=True, expose_value=False, callback=_version)],
            no_args_is_help=True,
        )
        self._launch = launch

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Ours in the order of their use, then the plugins'."""
        return [*_OURS, *sorted(self._foreign())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command; a plugin's is looked for only when we have none of that name."""
        if (module := _OURS.get(cmd_name)) is not None:
            return cast("click.Command", importlib.import_module(module).command(self._launch))
        return self._foreign().get(cmd_name)

    def _foreign(self) -> dict[str, click.Command]:
        return foreign_commands(self._launch.plugins, "", _OURS)


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run one command line; the exit code: 0, 1 a command's own failure, 2 what was asked for cannot be, 130 Ctrl-C."""
    try:
        launch, rest = take_early(arguments, environment)
        result = cast("object", Program(launch).main(rest, prog_name="tensorfold", standalone_mode=False, obj=launch))
        return result if isinstance(result, int) else 0
    except TensorfoldError as error:
        click.echo(f"tensorfold: {error}", err=True)
        return 2
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return 2
    except click.ClickException as error:
        click.echo(f"tensorfold: {_in_one_line(error)}", err=True)
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader has gone (`| head`); nothing more can be written, not even at exit.
        silence(sys.stdout)
        return 1


def _in_one_line(error: click.ClickException) -> str:
    """What click says of a wrong command line, and where the right words stand."""
    message = error.format_message()
    said = " ".join(message.split())
    if not said[:2].isupper():
        said = said[:1].lower() + said[1:]
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{said.rstrip('.')}; see `{error.ctx.command_path} --help`"
    return said


def _version(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(f"tensorfold {version('tensorfold')}")
        context.exit()
