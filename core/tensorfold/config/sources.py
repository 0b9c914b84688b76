"""Where values come from: `tensorfold.toml`, then the environment, then flags; the later wins."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from tensorfold.config.values import SettingValue, default_of, from_text, from_toml
from tensorfold.contracts.settings import Setting, SettingsTable
from tensorfold.errors import ConfigError

__all__ = ["ConfigFile", "Flags", "Resolved", "find_file", "nearest", "read_file", "resolve", "strangers"]

FILE_NAME = "tensorfold.toml"
FILE_VARIABLE = "TENSORFOLD_CONFIG"

Flags: TypeAlias = Mapping[tuple[str, str], bool | str | tuple[str, ...]]
"""What flags say, by (table, setting); flags that were not given are not in it."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A parsed configuration file."""

    path: Path
    document: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Resolved:
    """One setting's value, and who said it."""

    value: SettingValue
    origin: str
    """`default`, a file's name, a variable's, or a flag's."""


def find_file(given: Path | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    """The file that was named, else `tensorfold.toml` in this folder if there is one."""
    if given is None and (named := environment.get(FILE_VARIABLE)):
        given = Path(os.path.expanduser(named))
    if given is not None:
        return given
    usual = folder / FILE_NAME
    return usual if usual.is_file() else None


def read_file(path: Path) -> ConfigFile:
    """Parse a configuration file.

    Raises:
        ConfigError: it is not there, cannot be read, or is no TOML.
    """
    try:
        return ConfigFile(path, tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {path}") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error


def resolve(
    tables: Sequence[SettingsTable],
    file: ConfigFile | None,
    environment: Mapping[str, str],
    flags: Flags,
    unloaded: Collection[str] = (),
) -> dict[tuple[str, str], Resolved]:
    """Every setting's value, by (table, setting). The core's own table has the empty name.

    Args:
        unloaded: tables of plugins that are not loaded (`auth.keys`); the file may keep them.

    Raises:
        ConfigError: an unknown key, or a value of another type; names the origin and the nearest right name.
    """
    resolved = {
        (table.name, setting.name): Resolved(default_of(setting), "default")
        for table in tables
        for setting in table.settings
    }
    settings = {(table.name, setting.name): setting for table in tables for setting in table.settings}
    if file is not None:
        for key, raw in _leaves(file, {table.name for table in tables}, settings, unloaded):
            origin = f"{file.path}: {_dotted(*key)}"
            value = from_toml(settings[key], raw, origin, file.path.absolute().parent)
            resolved[key] = Resolved(value, file.path.name)
    for key, setting in settings.items():
        # An empty variable is as good as none: that is how shells and compose files leave one unset.
        if setting.env is not None and (text := environment.get(setting.env)):
            resolved[key] = Resolved(from_text(setting, text, setting.env), setting.env)
        if key in flags:
            resolved[key] = Resolved(_from_flag(setting, flags[key]), setting.flag or setting.name.upper())
    return resolved


def strangers(tables: Sequence[SettingsTable], environment: Mapping[str, str]) -> list[str]:
    """Sentences about variables that look like misspelt settings."""
    known = {setting.env for table in tables for setting in table.settings if setting.env} | {FILE_VARIABLE}
    unknown = sorted(name for name in environment if name.startswith("TENSORFOLD_") and name not in known)
    return [
        f"{name} is no setting; did you mean {close[0]}?"
        for name in unknown
        if (close := difflib.get_close_matches(name, known, n=1, cutoff=0.85))
    ]


def nearest(name: str, known: Collection[str]) -> str:
    """`; did you mean X?`, or which names there are."""
    if close := difflib.get_close_matches(name, known, n=1):
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(sorted(known))}"


def _from_flag(setting: Setting, given: bool | str | tuple[str, ...]) -> SettingValue:
    match given:
        case bool():
            return given
        case tuple():
            return given
        case str():
            return from_text(setting, given, setting.flag or setting.name.upper())


def _leaves(
    file: ConfigFile,
    tables: Collection[str],
    settings: Mapping[tuple[str, str], Setting],
    unloaded: Collection[str],
) -> Iterator[tuple[tuple[str, str], object]]:
    """Every (table, setting) of the file with its raw value."""
    pending: list[tuple[str, Mapping[str, object]]] = [("", file.document)]
    while pending:
        table, content = pending.pop()
        for name, raw in content.items():
            dotted = _dotted(table, name)
            setting = settings.get((table, name))
            if setting is not None and setting.toml:
                yield (table, name), raw
            elif isinstance(raw, dict) and any(each == dotted or each.startswith(f"{dotted}.") for each in tables):
                pending.append((dotted, cast("Mapping[str, object]", raw)))
            elif isinstance(raw, dict) and any(each == dotted or each.startswith(f"{dotted}.") for each in unloaded):
                continue
            elif dotted in {*tables, *unloaded}:
                raise ConfigError(f"{file.path}: {dotted} is {raw!r}, and must be a table: [{dotted}]")
            elif setting is not None:
                where = setting.env or setting.flag
                raise ConfigError(f"{file.path}: {dotted} is a secret and may not stand in the file; use {where}")
            else:
                names = {_dotted(*key) for key, each in settings.items() if key[0] == table and each.toml}
                names |= {each for each in tables if each and isinstance(raw, dict)}
                raise ConfigError(f"{file.path}: unknown key {dotted}{nearest(dotted, names)}")


def _dotted(table: str, name: str) -> str:
    return f"{table}.{name}" if table else name
