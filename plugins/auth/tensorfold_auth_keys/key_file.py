"""Writing key files: whole or not at all, for their owner alone; what people wrote into them stays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tensorfold.errors import ConfigError
from tensorfold_auth_keys.keys import DIGEST_MARK, check_label, digest_of, read_key_file, read_private

__all__ = ["add_key", "labels_of", "remove_key"]


def add_key(path: Path, label: str, key: str) -> None:
    """Add a key's digest to a file, which is made if it is not there.

    Raises:
        ConfigError: the label is none or taken, or the file cannot be used or written.
    """
    check_label(label)
    lines: list[str] = []
    if path.exists():
        lines = read_private(path).splitlines()
        if any(_label(line) == label for line in lines):
            raise ConfigError(f"{path} has a key of {label} already: remove it first, or choose another label")
    _write(path, [*lines, f"{label}: {DIGEST_MARK}{digest_of(key).hex()}"])


def remove_key(path: Path, label: str) -> int:
    """Take every key of a label out of a file; how many keys are left.

    Raises:
        ConfigError: the file has none, or cannot be used or written.
    """
    lines = read_private(path).splitlines()
    kept = [line for line in lines if _label(line) != label]
    if kept == lines:
        raise ConfigError(f"{path} has no key of {label}")
    _write(path, kept)
    return sum(1 for line in kept if _is_entry(line))


def labels_of(path: Path) -> Sequence[str]:
    """The labels of a file's keys, in its order.

    Raises:
        ConfigError: the file cannot be used.
    """
    return [key.label for key in read_key_file(path)]


def _is_entry(line: str) -> bool:
    return bool(line.strip()) and not line.strip().startswith("#")


def _label(line: str) -> str | None:
    """The label that a line gives; None: no entry, or one without a label of its own."""
    label, colon, _ = line.partition(":")
    return label.strip() if colon and _is_entry(line) else None


def _write(path: Path, lines: Sequence[str]) -> None:
    """Replace the file in one step, so that a server that reads it sees the old or the new one."""
    beside = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(
            f"{beside} is there: another command is changing the keys, or was broken off; remove it"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None
