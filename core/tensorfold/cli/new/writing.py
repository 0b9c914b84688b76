"""Templates to folders."""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from tensorfold.errors import ConfigError

__all__ = ["KINDS", "Written", "write_plugin"]

KINDS = ("model", "dialect", "auth")
"""What there are templates for."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
_SUFFIX = ".in"
"""Of templates, so that no tool takes them for what they will be."""

_SERVE = {
    "dialect": ("tensorfold serve --plugin {folder}",),
    "auth": ("{variable}=secret tensorfold serve --plugin {folder}",),
    "model": (
        "python -m tensorfold.testing.tiny_checkpoint {folder} ./{name}-tiny",
        "tensorfold serve ./{name}-tiny --plugin {folder}",
    ),
}


@dataclass(frozen=True, slots=True)
class Written:
    """A folder that was written."""

    folder: Path
    next: tuple[str, ...]
    """Commands to go on with."""


def write_plugin(kind: str, name: str, into: Path) -> Written:
    """Write a plugin's folder.

    Args:
        kind: one of `KINDS`.
        name: of the plugin; its package is `tensorfold_KIND_NAME`.
        into: where the folder is made.

    Raises:
        ConfigError: the name is none, or the folder is there or cannot be written.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{name!r} is no name for a plugin: use small letters, digits and underscores, a letter first"
        )
    folder = into / f"tensorfold-{kind}-{name.replace('_', '-')}"
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is there already: choose another name, or another place with --into")
    words = {
        "@name@": name,
        "@Name@": "".join(part.capitalize() for part in name.split("_")),
        "@NAME@": name.upper(),
        "@package@": f"tensorfold_{kind}_{name}",
        "@distribution@": folder.name,
        "@python@": f">=3.{min(sys.version_info.minor, 11)}",
    }
    try:
        _write(files("tensorfold.cli.new").joinpath("templates", kind), folder, words)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
    shown = str(folder) if folder.is_absolute() else f"./{folder}"
    commands = (f"tensorfold check {shown}", *_SERVE[kind])
    return Written(
        folder, tuple(each.format(folder=shown, name=name, variable=f"{name.upper()}_PASSWORD") for each in commands)
    )


def _write(template: Traversable, target: Path, words: dict[str, str]) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for each in template.iterdir():
        name = _filled(each.name, words)
        if each.is_dir():
            _write(each, target / name, words)
        elif name.endswith(_SUFFIX):
            text = _filled(each.read_text(encoding="utf-8"), words)
            (target / name.removesuffix(_SUFFIX)).write_text(text, encoding="utf-8")


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(word, value)
    return text
