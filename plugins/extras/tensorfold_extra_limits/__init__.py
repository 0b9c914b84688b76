"""Limits for each key: requests and tokens a minute, and requests at once. Off until one is set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tensorfold import hookimpl
from tensorfold.contracts.settings import PluginSettings, Setting, SettingsTable

if TYPE_CHECKING:
    from tensorfold.contracts.policy import RequestFilter

__all__ = ["tensorfold_request_filters", "tensorfold_settings"]

TABLE = "extras.limits"


@hookimpl
def tensorfold_settings() -> Iterable[SettingsTable]:
    """Three limits, and who is free of them."""
    yield SettingsTable(
        TABLE,
        (
            Setting(
                name="requests_per_minute",
                type="float",
                help="Requests a minute of one key; a minute's worth may come at once. 0: no limit.",
                default=0.0,
                flag="--key-requests-per-minute",
                env="TENSORFOLD_KEY_REQUESTS_PER_MINUTE",
            ),
            Setting(
                name="tokens_per_minute",
                type="float",
                help="Tokens a minute of one key, of prompts and replies together. 0: no limit.",
                default=0.0,
                flag="--key-tokens-per-minute",
                env="TENSORFOLD_KEY_TOKENS_PER_MINUTE",
            ),
            Setting(
                name="at_once",
                type="int",
                help="Requests of one key in progress. 0: no limit.",
                default=0,
                flag="--key-at-once",
                env="TENSORFOLD_KEY_AT_ONCE",
            ),
            Setting(
                name="unlimited",
                type="strs",
                help="Labels of keys that have no limits.",
                env="TENSORFOLD_KEY_UNLIMITED",
            ),
        ),
    )


@hookimpl
def tensorfold_request_filters(settings: PluginSettings) -> Iterable[RequestFilter]:
    """One filter, when any limit is set."""
    # Imported when it is asked for, since every command asks for the settings.
    from tensorfold_extra_limits.limits import KeyLimits, Limit

    values = settings.table(TABLE)
    limit = Limit(
        requests_per_minute=values["requests_per_minute"],
        tokens_per_minute=values["tokens_per_minute"],
        at_once=values["at_once"],
    )
    if limit.any:
        yield KeyLimits(limit, unlimited=values["unlimited"])
