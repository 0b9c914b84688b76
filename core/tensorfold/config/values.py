"""One raw value, as a file, the environment or a flag gives it, to the type that its setting declares."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TypeAlias, cast

from tensorfold.contracts.settings import Setting
from tensorfold.errors import ConfigError

__all__ = ["SettingValue", "default_of", "from_text", "from_toml"]

SettingValue: TypeAlias = bool | int | float | str | Path | tuple[str, ...] | None
"""What a setting may hold; None: nothing was said and there is no default."""

_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
_NAMES = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "a text",
    "path": "a path",
    "strs": "a list of texts",
    "auto": "an integer or auto",
}


def default_of(setting: Setting) -> SettingValue:
    """The value when nobody says anything."""
    match setting.type, setting.default:
        case "strs", None:
            return ()
        case "path", str() as text:
            return Path(os.path.expanduser(text))
        case _, default:
            return default


def from_text(setting: Setting, text: str, origin: str) -> SettingValue:
    """A value that came as text: a variable, or a flag.

    Raises:
        ConfigError: the text is no value of the setting's type; names the origin.
    """
    try:
        match setting.type:
            case "bool":
                return _WORDS[text.strip().lower()]
            case "int":
                return int(text)
            case "float":
                return _finite(float(text))
            case "str":
                return text
            case "path":
                return Path(os.path.expanduser(text))
            case "auto":
                return text if text == "auto" else int(text)
            case "strs":
                return _parts(text)
    except (KeyError, ValueError):
        raise _refusal(setting, text, origin) from None


def from_toml(setting: Setting, raw: object, origin: str, folder: Path) -> SettingValue:
    """A value of a TOML file; relative paths start at the file's folder.

    Raises:
        ConfigError: the value has another type; names the origin.
    """
    match setting.type, raw:
        case "bool", bool():
            return raw
        case "int" | "auto", int() if not isinstance(raw, bool):
            return raw
        case "auto", "auto":
            return "auto"
        case "float", int() | float() if not isinstance(raw, bool) and math.isfinite(raw):
            return float(raw)
        case "str", str():
            return raw
        case "path", str():
            return folder / Path(os.path.expanduser(raw))
        case "strs", list() if all(isinstance(each, str) for each in cast("list[object]", raw)):
            return tuple(cast("list[str]", raw))
        case _:
            raise _refusal(setting, raw, origin)


def _parts(text: str) -> tuple[str, ...]:
    """What lies between commas. Text that is nothing but commas is a mistake: a server would be open without its keys."""
    parts = tuple(part for each in text.split(",") if (part := each.strip()))
    if text.strip() and not parts:
        raise ValueError
    return parts


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError
    return value


def _refusal(setting: Setting, raw: object, origin: str) -> ConfigError:
    shown = "not shown" if setting.secret else repr(raw)
    return ConfigError(f"{origin} is {shown}, and must be {_NAMES[setting.type]}")
