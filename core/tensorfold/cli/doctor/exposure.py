"""Who can reach the server, with which keys, and who can read its files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tensorfold.cli.doctor.finding import Finding
from tensorfold.cli.early import Launch
from tensorfold.config import ServeConfig
from tensorfold.errors import ConfigError

__all__ = ["look_at_address", "look_at_files", "look_at_keys"]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def look_at_address(config: ServeConfig) -> Iterator[Finding]:
    """Whether a server could listen where it is told to."""
    from tensorfold.cli.application import server_settings
    from tensorfold.http.listening import check_listening

    where = str(config.unix_socket) if config.unix_socket is not None else f"{config.host} port {config.port}"
    try:
        check_listening(server_settings(config))
    except ConfigError as error:
        yield Finding(
            "address",
            "problem",
            str(error),
            "stop what is there (tensorfold models tells whether it is a server of ours)",
        )
    else:
        yield Finding("address", "ok", f"{where} is free")


def look_at_keys(launch: Launch, config: ServeConfig) -> Iterator[Finding]:
    """What the auth sources say of their keys, and whether keys are needed."""
    from tensorfold.cli.application import listens_to_this_machine_alone

    try:
        sources = [offered.value for offered in launch.plugins.auth_sources(config.settings)]
    except ConfigError as error:
        yield Finding(
            "keys", "problem", str(error), "the message says how; tensorfold keys new LABEL makes a good file"
        )
        return
    guarding = [source for source in sources if source.guards]
    for source in guarding:
        yield Finding("keys", "ok", f"{source.name}: {source.description}")
    if guarding:
        return
    if listens_to_this_machine_alone(config):
        yield Finding("keys", "ok", "no keys, and only this machine reaches the server")
    else:
        said = f"no keys, and whoever reaches {config.host} may use the server"
        yield Finding("keys", "warning", said, "tensorfold keys new LABEL --file PATH, and --api-key-file PATH")


def look_at_files(config: ServeConfig) -> Iterator[Finding]:
    """Whether others can read what they should not."""
    if os.name != "posix":
        return
    private = {
        "the key of the certificate": config.tls_key,
        "the folder of logged requests": config.log_requests,
        "the folder of kept prompts": config.spill_dir,
    }
    for what, path in private.items():
        if path is not None and path.exists():
            yield _private(what, path)


def _private(what: str, path: Path) -> Finding:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        right = "700" if path.is_dir() else "600"
        return Finding(
            "files", "warning", f"{what}, {path}, is open to others (mode {mode:04o})", f"chmod {right} {path}"
        )
    return Finding("files", "ok", f"{what}, {path}, is its owner's alone")
