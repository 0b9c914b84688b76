"""OpenTelemetry traces: one span a request, its phases as events. Off until it is told where to send them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tensorfold import hookimpl
from tensorfold.contracts.settings import PluginSettings, Setting, SettingsTable

if TYPE_CHECKING:
    from tensorfold.contracts.observe import Observer

__all__ = ["tensorfold_observers", "tensorfold_settings"]

TABLE = "extras.otel"


@hookimpl
def tensorfold_settings() -> Iterable[SettingsTable]:
    """Where to, and under which name."""
    yield SettingsTable(
        TABLE,
        (
            Setting(
                name="endpoint",
                type="str",
                help="Send a trace of each request to this OTLP collector (http://localhost:4318).",
                flag="--otel-endpoint",
                env="TENSORFOLD_OTEL_ENDPOINT",
            ),
            Setting(
                name="service",
                type="str",
                help="The service's name in traces.",
                default="tensorfold",
                env="TENSORFOLD_OTEL_SERVICE",
            ),
        ),
    )


@hookimpl
def tensorfold_observers(settings: PluginSettings) -> Iterable[Observer]:
    """One observer, when there is somewhere to send traces."""
    values = settings.table(TABLE)
    if values["endpoint"]:
        # Imported when it is asked for, since every command asks for the settings.
        from tensorfold_extra_otel.exporting import exporting

        yield exporting(values["endpoint"], values["service"])
