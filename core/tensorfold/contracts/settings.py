"""A plugin's own configuration: declared once, read from `tensorfold.toml`, the environment and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tensorfold.errors import ConfigError

__all__ = ["PluginSettings", "Setting", "SettingType", "SettingsTable"]

SettingType: TypeAlias = Literal["bool", "int", "float", "str", "path", "strs", "auto"]
"""`auto` is an integer, or the text `auto`. `strs` is a list of texts: a repeated flag, an array, or a comma-separated variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One value."""

    name: str
    """The key in the plugin's table."""
    type: SettingType
    help: str
    """One sentence for `--help` and the documentation."""
    default: bool | int | float | str | tuple[str, ...] | None = None
    flag: str | None = None
    """`--name` on `tensorfold serve`; None: no flag."""
    env: str | None = None
    """An environment variable; None: none."""
    toml: bool = True
    """Whether the table in `tensorfold.toml` may hold it (secrets may not)."""
    secret: bool = False
    """Never shown by `tensorfold config`, logs or error messages."""


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """The settings of one plugin, under `[NAME]` in `tensorfold.toml`."""

    name: str
    """Unique among tables (`auth.keys`)."""
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """The values of every plugin's settings, given to the hooks that ask for them."""

    tables: Mapping[str, Mapping[str, Any]]

    def table(self, name: str) -> Mapping[str, Any]:
        """The values of one table, defaults filled in.

        Raises:
            ConfigError: no plugin declares a table of this name.
        """
        try:
            return self.tables[name]
        except KeyError:
            raise ConfigError(f"no plugin declares settings under [{name}]") from None
