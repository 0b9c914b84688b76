"""API keys from flags, an environment variable and a file, added together in one source."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tensorfold import hookimpl
from tensorfold.contracts.auth import AuthSource
from tensorfold.contracts.commands import Command
from tensorfold.contracts.examples import Example
from tensorfold.contracts.settings import PluginSettings, Setting, SettingsTable

__all__ = ["tensorfold_auth_sources", "tensorfold_commands", "tensorfold_examples", "tensorfold_settings"]

TABLE = "auth.keys"


@hookimpl
def tensorfold_settings() -> Iterable[SettingsTable]:
    """Three settings, for what comes from which place decides a key's label."""
    yield SettingsTable(
        TABLE,
        (
            Setting(
                name="api_key",
                type="strs",
                help="A key that callers must send; repeat the flag for more. Other users see it in the process list.",
                flag="--api-key",
                toml=False,
                secret=True,
            ),
            Setting(
                name="api_key_variable",
                type="strs",
                help="Keys that callers must send, separated by commas.",
                env="TENSORFOLD_API_KEY",
                toml=False,
                secret=True,
            ),
            Setting(
                name="api_key_file",
                type="path",
                help="A file of keys, one a line or `label: key`, as `tensorfold keys new` writes it; chmod 600.",
                flag="--api-key-file",
                env="TENSORFOLD_API_KEY_FILE",
            ),
        ),
    )


@hookimpl
def tensorfold_auth_sources(settings: PluginSettings) -> Iterable[AuthSource]:
    """One source, which guards when any key is configured."""
    # Imported when it is asked for, since every command asks for the settings.
    from tensorfold_auth_keys.source import KeySource

    values = settings.table(TABLE)
    file = values["api_key_file"]
    yield KeySource(
        flags=tuple(values["api_key"] or ()),
        variable=tuple(values["api_key_variable"] or ()),
        file=None if file is None else Path(file),
    )


@hookimpl
def tensorfold_commands() -> Iterable[Command]:
    """`tensorfold keys`."""
    from tensorfold_auth_keys.command import keys_command

    yield Command(keys_command())


@hookimpl
def tensorfold_examples() -> Iterable[Example]:
    """What `tensorfold check` tries it with."""
    from tensorfold_auth_keys.examples import EXAMPLE

    yield EXAMPLE
