"""The HTTP side of a server: its application and its settings, from the configuration."""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.cli.assemble import Assembled
from tensorfold.config import ServeConfig
from tensorfold.contracts.auth import AuthSource
from tensorfold.http import Application, HttpSettings, ServerSettings, create_app
from tensorfold.http.request_log import RequestLog

__all__ = ["server_settings", "web_application"]


def web_application(
    config: ServeConfig, assembled: Assembled, auth: Sequence[AuthSource], request_log: RequestLog | None = None
) -> Application:
    """The application over an assembled model.

    Raises:
        PluginConflict: two dialects claim one path or one key of a model's entry.
    """
    catalog = assembled.catalog
    return create_app(
        engine=assembled.engine,
        model=assembled.model,
        tokenizer=assembled.tokenizer,
        dialects=catalog.dialects,
        auth=auth,
        filters=catalog.filters,
        observers=catalog.observers,
        collectors=catalog.collectors,
        request_log=request_log,
        settings=HttpSettings(
            max_body=config.body_limit,
            keep_alive_seconds=config.keep_alive,
            metrics_open=config.metrics_open,
        ),
    )


def server_settings(config: ServeConfig) -> ServerSettings:
    """Where to listen, and how to end."""
    return ServerSettings(host=config.host, port=config.port, drain_seconds=config.grace)
