"""ACME's callers: whoever knows the password of `[auth.acme]`."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from tensorfold import hookimpl
from tensorfold.contracts.auth import AuthSource, Credentials, Principal
from tensorfold.contracts.settings import PluginSettings, Setting, SettingsTable

TABLE = SettingsTable(
    "auth.acme",
    (
        Setting(
            name="password",
            type="str",
            help="What ACME's callers must know; none: anybody may call.",
            env="ACME_PASSWORD",
            toml=False,
            secret=True,
        ),
    ),
)


class AcmeSource:
    """One password for all."""

    name = "acme"

    def __init__(self, password: str | None) -> None:
        self._password = None if password is None else password.encode()

    @property
    def guards(self) -> bool:
        """Whether there is a password."""
        return self._password is not None

    @property
    def description(self) -> str:
        """For the start-up block."""
        return "ACME's password"

    def identify(self, credentials: Credentials) -> Principal | None:
        """Whoever offers the password; every offer is compared to its end."""
        if self._password is None:
            return None
        matches = [
            hmac.compare_digest(offered.encode("utf-8", "surrogatepass"), self._password)
            for offered in credentials.offered
        ]
        return Principal("acme") if any(matches) else None

    def refresh(self) -> None:
        """The password never changes."""

    def reload(self) -> None:
        """The password never changes."""


@hookimpl
def tensorfold_settings() -> Iterable[SettingsTable]:
    """One secret."""
    yield TABLE


@hookimpl
def tensorfold_auth_sources(settings: PluginSettings) -> Iterable[AuthSource]:
    """One source, which guards when there is a password."""
    yield AcmeSource(settings.table("auth.acme")["password"])
