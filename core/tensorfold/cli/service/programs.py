"""The system's own programs, run as lists of arguments, and what a manager of services does."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tensorfold.errors import ConfigError

__all__ = ["Manager", "run_program", "show_program", "write_file"]

SECONDS = 60.0


class Manager(Protocol):
    """What keeps services on one system."""

    @property
    def file(self) -> Path:
        """What describes the service."""
        ...

    @property
    def hint(self) -> str:
        """When the service runs, for the user."""
        ...

    def install(self, arguments: Sequence[str], stop_seconds: float) -> None:
        """Write the description, start the service, and start it anew after each login.

        Raises:
            ConfigError: it cannot be.
        """
        ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def status(self) -> int:
        """Show how it is; 0 when it runs."""
        ...

    def logs(self, lines: int, follow: bool) -> int:
        """Show what it has said."""
        ...

    def uninstall(self) -> None:
        """Stop it and remove the description."""
        ...


def run_program(*arguments: str) -> None:
    """Run a program to its end.

    Raises:
        ConfigError: it is not there, or fails; says what it said.
    """
    _check(arguments[0])
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split()) or f"exit code {done.returncode}"
        raise ConfigError(f"`{' '.join(arguments)}` failed: {said}")


def show_program(*arguments: str) -> int:
    """Run a program whose output is the user's; its exit code.

    Raises:
        ConfigError: it is not there.
    """
    _check(arguments[0])
    return subprocess.run(arguments, check=False).returncode


def _check(program: str) -> None:
    if shutil.which(program) is None:
        raise ConfigError(f"there is no program {program} on this machine, which is what keeps services")


def write_file(path: Path, content: bytes) -> None:
    """
    Raises:
        ConfigError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o600)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
