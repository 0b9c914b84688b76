"""The HTTP side of a server: its application and its settings, from the configuration."""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.cli.assemble import Assembled
from tensorfold.config import ServeConfig
from tensorfold.contracts.auth import AuthSource
from tensorfold.http import Application, HttpSettings, ServerSettings, create_app
from tensorfold.http.origins import is_own_name
from tensorfold.http.request_log import RequestLog

__all__ = ["http_settings", "listens_to_this_machine_alone", "server_settings", "web_application"]


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
        settings=http_settings(config),
    )


def http_settings(config: ServeConfig) -> HttpSettings:
    """The application's limits, and who may ask."""
    return HttpSettings(
        max_body=config.body_limit,
        keep_alive_seconds=config.keep_alive,
        metrics_open=config.metrics_open,
        body_idle_seconds=config.body_timeout,
        max_head=config.head_limit,
        max_requests=config.max_requests,
        max_pending=config.pending_limit,
        cors_origins=config.cors_origin,
        allowed_hosts=_allowed_hosts(config),
    )


def server_settings(config: ServeConfig) -> ServerSettings:
    """Where to listen, and how to end."""
    return ServerSettings(
        host=config.host,
        port=config.port,
        unix_socket=config.unix_socket,
        tls_cert=config.tls_cert,
        tls_key=config.tls_key,
        drain_seconds=config.grace,
        idle_seconds=config.idle_timeout,
        head_seconds=config.head_timeout,
        write_seconds=config.write_timeout,
        max_head=config.head_limit,
        max_connections=config.max_connections,
    )


def _allowed_hosts(config: ServeConfig) -> tuple[str, ...] | None:
    """Whoever listens on this machine alone is reached under its names alone, unless others are given."""
    if "*" in config.allowed_host or config.unix_socket is not None:
        return None
    if config.allowed_host:
        return (*config.allowed_host, config.host)
    return () if listens_to_this_machine_alone(config) else None


def listens_to_this_machine_alone(config: ServeConfig) -> bool:
    """Whether no other machine reaches the server."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    return config.unix_socket is not None or is_own_name(host.encode(), ())
