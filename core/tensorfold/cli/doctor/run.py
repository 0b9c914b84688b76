"""The command."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from tensorfold.cli.early import Launch
from tensorfold.cli.options import SettingsCommand

if TYPE_CHECKING:
    from tensorfold.cli.doctor.finding import Finding
    from tensorfold.config import ServeConfig

__all__ = ["command"]

_MARKS = {"ok": "ok", "note": "--", "warning": "!!", "problem": "XX"}


def command(launch: Launch) -> click.Command:
    """The command, with every flag of `tensorfold serve`."""

    def doctor(config: ServeConfig, as_json: bool) -> int:
        findings = list(_look(launch, config))
        if as_json:
            click.echo(json.dumps([dataclasses.asdict(each) for each in findings], indent=2))
        else:
            for each in findings:
                click.echo(_line(each))
        return 1 if any(each.state == "problem" for each in findings) else 0

    return SettingsCommand(
        "doctor",
        launch,
        doctor,
        help="Look at Python, packages, plugins, devices, the address, keys, files and disks, and say what to do. Exit "
        "code 1 when something would keep a server from starting.",
        params=[click.Option(["--json", "as_json"], is_flag=True, help="As a JSON list.")],
    )


def _look(launch: Launch, config: ServeConfig) -> Iterator[Finding]:
    # Imported here, since `tensorfold --help` must not pay for them.
    from tensorfold.cli.doctor import exposure, machine, software

    looks: tuple[tuple[str, Callable[[], Iterable[Finding]]], ...] = (
        ("python", software.look_at_python),
        ("packages", software.look_at_packages),
        ("plugins", lambda: software.look_at_plugins(launch)),
        ("settings", lambda: _settings(launch, config)),
        ("devices", lambda: machine.look_at_devices(launch)),
        ("memory", machine.look_at_memory),
        ("address", lambda: exposure.look_at_address(config)),
        ("keys", lambda: exposure.look_at_keys(launch, config)),
        ("files", lambda: exposure.look_at_files(config)),
        ("disk", lambda: machine.look_at_disk(config)),
        ("models", lambda: machine.look_at_checkpoints(launch)),
    )
    for area, look in looks:
        yield from _safely(area, look)


def _safely(area: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """A look that fails is a finding like any other, and the next one is taken."""
    from tensorfold.cli.doctor.finding import Finding

    try:
        yield from look()
    except Exception as error:  # noqa: BLE001 (a plugin may raise anything)
        yield Finding(area, "problem", f"{type(error).__name__}: {error}", "the message says what is wrong")


def _settings(launch: Launch, config: ServeConfig) -> Iterator[Finding]:
    from tensorfold.cli.doctor.finding import Finding

    where = "no tensorfold.toml" if launch.file is None else str(launch.file.path)
    yield Finding("settings", "ok", f"{where}; tensorfold config shows every value and who said it")
    for warning in config.warnings:
        yield Finding("settings", "warning", warning, "rename or unset the variable")


def _line(finding: Finding) -> str:
    todo = f"\n{'':14}-> {finding.todo}" if finding.todo else ""
    return f"{_MARKS[finding.state]}  {finding.area.ljust(10)}{finding.says}{todo}"
