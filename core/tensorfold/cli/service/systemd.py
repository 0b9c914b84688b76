"""A user unit of systemd."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tensorfold.cli.service.programs import run_program, show_program, write_file

__all__ = ["Systemd"]

_PLAIN = re.compile(r"[A-Za-z0-9_./:=@,+-]+", re.ASCII)


class Systemd:
    """Implements `programs.Manager`."""

    hint = "it runs while you are logged in; `loginctl enable-linger` lets it run from the machine's start on"

    def __init__(self, name: str, config_home: Path) -> None:
        """`config_home`: `~/.config`, or where XDG_CONFIG_HOME says."""
        self._unit = f"{name}.service"
        self.file = config_home / "systemd" / "user" / self._unit

    def install(self, arguments: Sequence[str], stop_seconds: float) -> None:
        """Write the unit and let systemd start it, now and at each login."""
        write_file(self.file, unit(arguments, stop_seconds).encode())
        run_program("systemctl", "--user", "daemon-reload")
        run_program("systemctl", "--user", "enable", self._unit)
        run_program("systemctl", "--user", "restart", self._unit)

    def start(self) -> None:
        """Start it."""
        run_program("systemctl", "--user", "start", self._unit)

    def stop(self) -> None:
        """Stop it."""
        run_program("systemctl", "--user", "stop", self._unit)

    def status(self) -> int:
        """systemd's own page."""
        return show_program("systemctl", "--user", "--no-pager", "status", self._unit)

    def logs(self, lines: int, follow: bool) -> int:
        """From the journal."""
        more = ("--follow",) if follow else ()
        return show_program("journalctl", "--user", "--no-pager", "--lines", str(lines), *more, "--unit", self._unit)

    def uninstall(self) -> None:
        """Stop it, and forget it."""
        run_program("systemctl", "--user", "disable", "--now", self._unit)
        self.file.unlink(missing_ok=True)
        run_program("systemctl", "--user", "daemon-reload")


def unit(arguments: Sequence[str], stop_seconds: float) -> str:
    """The unit's file."""
    return f"""\
# Written by `tensorfold service install`, which writes it anew; `tensorfold service uninstall` removes it.
[Unit]
Description=tensorfold, a server of language models

[Service]
Type=exec
ExecStart={" ".join(map(_quoted, arguments))}
Restart=on-failure
RestartSec=5
TimeoutStopSec={stop_seconds:.0f}
UMask=0077
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def _quoted(argument: str) -> str:
    """One argument in systemd's spelling, in which `%` and `$` have a meaning even between quotes."""
    escaped = argument.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if _PLAIN.fullmatch(argument) else f'"{escaped}"'
