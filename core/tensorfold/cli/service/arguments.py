"""The command line that a service runs: a list, checked now rather than at the first start, and without secrets."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tensorfold.cli.early import Launch
from tensorfold.cli.options import SettingOption
from tensorfold.config import ServeConfig
from tensorfold.errors import ConfigError

__all__ = ["ServiceLine", "serve_arguments", "unheard_variables"]


@dataclass(frozen=True, slots=True)
class ServiceLine:
    """What a service runs."""

    words: tuple[str, ...]
    config: ServeConfig
    """What they come to."""


def serve_arguments(launch: Launch, given: Sequence[str]) -> ServiceLine:
    """What runs `tensorfold serve` with these arguments, from any folder.

    Args:
        given: as they would stand behind `tensorfold serve`.

    Raises:
        ConfigError: a value or a key file cannot be used, or is a secret, which every user of the machine would see.
        click.UsageError: no such option.
    """
    from tensorfold.cli.serve import command

    serve = command(launch)
    with serve.make_context("serve", list(given), resilient_parsing=False) as context:
        flags = {
            option: context.params[option.parameter]
            for option in serve.params
            if isinstance(option, SettingOption) and context.params[option.parameter] not in (None, ())
        }
        model = context.params["model"]
    _refuse_secrets(flags)
    # A typo, a value out of its bounds or a bad key file is told now.
    config = launch.config({(option.table, option.setting.name): value for option, value in flags.items()})
    launch.plugins.auth_sources(config.settings)
    words = [sys.executable, "-m", "tensorfold", *_early(launch), "serve"]
    if model is not None:
        words.append(_whole(model))
    for option, value in flags.items():
        words += _words(option, value)
    if broken := next((word for word in words if "\n" in word or "\0" in word), None):
        raise ConfigError(f"{broken!r} holds a line break, which no service's arguments can")
    return ServiceLine(tuple(words), config)


def unheard_variables(environment: Mapping[str, str]) -> list[str]:
    """Settings of this shell that the service will not have."""
    return sorted(name for name in environment if name.startswith("TENSORFOLD_"))


def _refuse_secrets(flags: Mapping[SettingOption, object]) -> None:
    for option in flags:
        if option.setting.secret:
            raise ConfigError(
                f"{option.setting.flag} is a secret, which would stand in the service's file and in the process list:"
                " use a file, with --api-key-file"
            )


def _early(launch: Launch) -> Iterator[str]:
    """The options that choose plugins and the file; they were taken out of the command line before."""
    if launch.file is not None:
        yield from ("--config", str(launch.file.path.absolute()))
    for (_, name), value in launch.given.items():
        for each in value if isinstance(value, tuple) else (str(value),):
            yield from (f"--{name}", _whole(each) if each.endswith(".py") else each)


def _words(option: SettingOption, value: object) -> Iterator[str]:
    flag = option.setting.flag or ""
    match value:
        case bool():
            yield flag if value else f"--no-{flag.removeprefix('--')}"
        case tuple() | list():
            for each in cast("Sequence[object]", value):
                yield from (flag, str(each))
        case _ if option.setting.type == "path":
            # Also where nothing is yet: the service's own folder is another one.
            yield from (flag, os.path.abspath(os.path.expanduser(str(value))))
        case _:
            yield from (flag, str(value))


def _whole(text: str) -> str:
    """A path that is there as a whole one; a name as it is."""
    path = Path(os.path.expanduser(text))
    return str(path.absolute()) if path.exists() else text
