"""Settings as flags of a command. All values are parsed by the settings' own rules, so that messages are the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import click

from tensorfold.cli.early import Launch
from tensorfold.config import core_table
from tensorfold.contracts.settings import Setting, SettingsTable

__all__ = ["SettingOption", "SettingsCommand"]

_METAVARS = {"int": "N", "float": "NUMBER", "str": "TEXT", "path": "PATH", "strs": "TEXT", "auto": "N|auto"}


class SettingOption(click.Option):
    """The flag of one setting; None when it was not given, so that file and environment can speak."""

    def __init__(self, table: str, setting: Setting) -> None:
        flag = setting.flag or ""
        self.table = table
        self.setting = setting
        self.parameter = _parameter(table, setting)
        boolean = setting.type == "bool"
        super().__init__(
            [f"{flag}/--no-{flag.removeprefix('--')}" if boolean else flag, self.parameter],
            default=None,
            help=_help(setting),
            metavar=None if boolean else _METAVARS[setting.type],
            multiple=setting.type == "strs",
            type=None if boolean else str,
            is_flag=boolean,
        )


class SettingsCommand(click.Command):
    """A command with a flag for each setting; its callback gets the `ServeConfig` that they make as `config`."""

    def __init__(
        self,
        name: str,
        launch: Launch,
        callback: Callable[..., int | None],
        *,
        help: str,
        params: Sequence[click.Parameter] = (),
        without: Collection[str] = (),
    ) -> None:
        """Add flags to `params`; `without` names core settings that get none."""
        super().__init__(name, help=help, callback=callback, params=[*params, *_options(launch.tables, without)])
        self._launch = launch

    def invoke(self, ctx: click.Context) -> object:
        """Run the callback with the configuration in place of the flags."""
        flags: dict[tuple[str, str], bool | str | tuple[str, ...]] = {}
        for option in self.params:
            if isinstance(option, SettingOption):
                given = ctx.params.pop(option.parameter)
                if given is not None and given != ():
                    flags[option.table, option.setting.name] = given
        ctx.params["config"] = self._launch.config(flags)
        return super().invoke(ctx)


def _options(tables: Sequence[SettingsTable], without: Collection[str]) -> list[click.Parameter]:
    return [
        SettingOption(table.name, setting)
        for table in (core_table(), *tables)
        for setting in table.settings
        if setting.flag is not None and not (table.name == "" and setting.name in without)
    ]


def _parameter(table: str, setting: Setting) -> str:
    """A name for click that no other table's setting has."""
    return f"{table}__{setting.name}".replace(".", "_").replace("-", "_").lower()


def _help(setting: Setting) -> str:
    if setting.default in (None, (), False, "") or setting.secret:
        return setting.help
    return f"{setting.help}  [default: {setting.default}]"
