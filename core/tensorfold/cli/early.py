"""Options that decide which plugins load, so that they are read before any plugin's own options exist."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tensorfold.config import ConfigFile, Flags, ServeConfig, core_table, find_file, load_config, read_file
from tensorfold.config.sources import resolve
from tensorfold.config.values import SettingValue
from tensorfold.contracts.settings import SettingsTable
from tensorfold.errors import ConfigError, PluginConflict
from tensorfold.plugins import Plugins, Wanted

__all__ = ["Launch", "take_early"]

_REPEATED = ("plugin", "dialect")
_SINGLE = ("backend", "config")


@dataclass(frozen=True)
class Launch:
    """What is known before a command runs; its plugins load when the command first needs them."""

    given: Flags
    """The early flags, by (table, setting)."""
    file: ConfigFile | None
    environment: Mapping[str, str]

    @cached_property
    def plugins(self) -> Plugins:
        """The plugins, loaded.

        Raises:
            PluginError, ConfigError: those of `Plugins` and of the settings that choose them.
        """
        return Plugins(self._wanted())

    @cached_property
    def tables(self) -> tuple[SettingsTable, ...]:
        """The settings of all loaded plugins.

        Raises:
            PluginConflict: two tables with one name, or two settings with one flag.
        """
        owners: dict[str, str] = {"--config": "tensorfold", "--help": "tensorfold"}
        owners.update((setting.flag, "tensorfold") for setting in core_table().settings if setting.flag)
        for offered in self.plugins.settings():
            table = offered.value
            claims = [f"[{table.name}]", *(setting.flag for setting in table.settings if setting.flag)]
            for claim in claims:
                if (owner := owners.setdefault(claim, str(offered.plugin))) != str(offered.plugin):
                    raise PluginConflict(f"{owner} and {offered.plugin} both claim the setting {claim}")
        return tuple(offered.value for offered in self.plugins.settings())

    def config(self, flags: Flags) -> ServeConfig:
        """The whole configuration, with a command's own flags.

        Raises:
            ConfigError: a value that cannot be used.
        """
        return load_config(self.tables, self.file, self.environment, {**self.given, **flags}, self._unloaded())

    def _wanted(self) -> Wanted:
        table = core_table()
        chosen = SettingsTable("", tuple(each for each in table.settings if each.name in (*_REPEATED, "backend")))
        file = None
        if self.file is not None:
            names = {each.name for each in chosen.settings}
            kept = {name: value for name, value in self.file.document.items() if name in names}
            file = ConfigFile(self.file.path, kept)
        values = {
            name: each.value for (_, name), each in resolve((chosen,), file, self.environment, self.given).items()
        }
        backend = values["backend"]
        return Wanted(
            dialects=_texts(values["dialect"]),
            backend=backend if isinstance(backend, str) else None,
            plugins=_texts(values["plugin"]),
        )

    def _unloaded(self) -> Collection[str]:
        return {f"{each.kind}.{each.name}" for each in self.plugins.states if each.state != "loaded"}


def take_early(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[Launch, list[str]]:
    """The early options, wherever they stand, and the other arguments.

    Raises:
        ConfigError: an option without its value, or a file that cannot be read.
    """
    many: dict[str, list[str]] = {name: [] for name in _REPEATED}
    single: dict[str, str] = {}
    rest: list[str] = []
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        if argument == "--":
            rest += [argument, *pending]
            break
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--")
        if not flag.startswith("--") or name not in (*_REPEATED, *_SINGLE):
            rest.append(argument)
            continue
        if not equals:
            if not pending:
                raise ConfigError(f"{flag} needs a value")
            value = pending.pop(0)
        if name in _REPEATED:
            many[name].append(value)
        else:
            single[name] = value
    path = find_file(Path(single["config"]) if "config" in single else None, environment, Path())
    given: dict[tuple[str, str], bool | str | tuple[str, ...]] = {
        ("", name): tuple(values) for name, values in many.items() if values
    }
    if "backend" in single:
        given["", "backend"] = single["backend"]
    return Launch(given, None if path is None else read_file(path), environment), rest


def _texts(value: SettingValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
