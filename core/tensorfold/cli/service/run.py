"""The commands."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorfold.cli.early import Launch
from tensorfold.errors import ConfigError

if TYPE_CHECKING:
    from tensorfold.cli.service.programs import Manager

__all__ = ["command"]

BESIDES = 10.0
"""Seconds that a server may take to end besides those of its grace."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def command(launch: Launch) -> click.Command:
    """The group of commands."""
    group = click.Group("service", help="Let the system keep a server: a systemd user unit, or a LaunchAgent on a Mac.")
    group.add_command(_install(launch))
    for name, help, act in _SIMPLE:
        group.add_command(
            click.Command(name, help=help, params=[_name_option()], callback=_act(launch, act)),
        )
    group.add_command(_logs(launch))
    return group


def _install(launch: Launch) -> click.Command:
    @click.command(
        "install",
        help="Install and start a server. ARGUMENTS are those of `tensorfold serve`: MODEL and options. Keys only by "
        "--api-key-file, and settings of the environment do not count: use tensorfold.toml or options.",
        params=[_name_option()],
        context_settings={"ignore_unknown_options": True},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def install(name: str, arguments: tuple[str, ...]) -> None:
        from tensorfold.cli.service.arguments import serve_arguments, unheard_variables

        manager = _manager(launch, name)
        line = serve_arguments(launch, arguments)
        if unheard := unheard_variables(launch.environment):
            click.echo(f"warning: the service will not have {', '.join(unheard)} of this shell", err=True)
        manager.install(line.words, line.config.grace + BESIDES)
        click.echo(f"installed as {manager.file}; tensorfold service status tells how it is")
        click.echo(manager.hint)

    return install


def _logs(launch: Launch) -> click.Command:
    @click.command("logs", help="Show what the server has said.", params=[_name_option()])
    @click.option("--lines", type=click.IntRange(1), default=100, show_default=True, help="How many of the last lines.")
    @click.option("--follow", is_flag=True, help="Go on with what it says from now on.")
    def logs(name: str, lines: int, follow: bool) -> int:
        return _installed(launch, name).logs(lines, follow)

    return logs


def _start(manager: Manager) -> int:
    manager.start()
    return 0


def _stop(manager: Manager) -> int:
    manager.stop()
    return 0


def _status(manager: Manager) -> int:
    return manager.status()


def _uninstall(manager: Manager) -> int:
    manager.uninstall()
    click.echo(f"{manager.file} is removed")
    return 0


_SIMPLE: tuple[tuple[str, str, Callable[[Manager], int]], ...] = (
    ("start", "Start the server.", _start),
    ("stop", "Stop the server; it starts again at the next login.", _stop),
    ("status", "Show how the server is; exit code 0 when it runs.", _status),
    ("uninstall", "Stop the server, and let the system forget it.", _uninstall),
)


def _act(launch: Launch, act: Callable[[Manager], int]) -> Callable[[str], int]:
    return lambda name: act(_installed(launch, name))


def _name_option() -> click.Option:
    return click.Option(["--name"], default="tensorfold", show_default=True, help="The service's, for several at once.")


def _installed(launch: Launch, name: str) -> Manager:
    """
    Raises:
        ConfigError: there is no such service.
    """
    manager = _manager(launch, name)
    if not manager.file.exists():
        raise ConfigError(f"no service {name} is installed: there is no {manager.file}")
    return manager


def _manager(launch: Launch, name: str) -> Manager:
    """
    Raises:
        ConfigError: the name is none, or services are kept here in a way that is not known.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a service: letters, digits, dots, underscores and hyphens")
    match sys.platform:
        case "linux":
            from tensorfold.cli.service.systemd import Systemd

            given = launch.environment.get("XDG_CONFIG_HOME")
            return Systemd(name, Path(given) if given else Path.home() / ".config")
        case "darwin":
            from tensorfold.cli.service.launchd import Launchd

            return Launchd(name, Path.home(), os.getuid())
        case other:
            raise ConfigError(f"services are kept by systemd and launchd, and {other} has neither")
