"""A LaunchAgent of macOS."""

from __future__ import annotations

import plistlib
from collections.abc import Sequence
from pathlib import Path

from tensorfold.cli.service.programs import run_program, show_program, write_file
from tensorfold.errors import ConfigError

__all__ = ["Launchd"]


class Launchd:
    """Implements `programs.Manager`."""

    hint = "it runs while you are logged in"

    def __init__(self, name: str, home: Path, user: int) -> None:
        """`user`: the number of the user whose agent it is."""
        self._label = f"org.tensorfold.{name}"
        self._domain = f"gui/{user}"
        self._log = home / "Library" / "Logs" / "tensorfold" / f"{name}.log"
        self.file = home / "Library" / "LaunchAgents" / f"{self._label}.plist"

    def install(self, arguments: Sequence[str], stop_seconds: float) -> None:
        """Write the agent and let launchd start it, now and at each login."""
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(f"{self._log.parent} cannot be made: {error.strerror}") from None
        there = self.file.exists()
        write_file(self.file, self._agent(arguments, stop_seconds))
        if there:
            show_program("launchctl", "bootout", f"{self._domain}/{self._label}")
        run_program("launchctl", "bootstrap", self._domain, str(self.file))

    def _agent(self, arguments: Sequence[str], stop_seconds: float) -> bytes:
        return plistlib.dumps(
            {
                "Label": self._label,
                "ProgramArguments": list(arguments),
                "RunAtLoad": True,
                "KeepAlive": {"SuccessfulExit": False},
                "ExitTimeOut": round(stop_seconds),
                "ProcessType": "Interactive",
                "Umask": 0o077,
                "StandardOutPath": str(self._log),
                "StandardErrorPath": str(self._log),
            }
        )

    def start(self) -> None:
        """Start it."""
        run_program("launchctl", "kickstart", f"{self._domain}/{self._label}")

    def stop(self) -> None:
        """Stop it; a server that ends in order is not started again."""
        run_program("launchctl", "kill", "SIGTERM", f"{self._domain}/{self._label}")

    def status(self) -> int:
        """launchd's own page."""
        return show_program("launchctl", "print", f"{self._domain}/{self._label}")

    def logs(self, lines: int, follow: bool) -> int:
        """From its file."""
        more = ("-f",) if follow else ()
        return show_program("tail", "-n", str(lines), *more, str(self._log))

    def uninstall(self) -> None:
        """Stop it, and forget it; its log stays."""
        run_program("launchctl", "bootout", f"{self._domain}/{self._label}")
        self.file.unlink(missing_ok=True)
