"""`tensorfold serve`: find, load and serve a model until a signal comes."""

from __future__ import annotations

import dataclasses
import faulthandler
import signal
import sys

import click

from tensorfold.cli.early import Launch
from tensorfold.cli.options import SettingsCommand
from tensorfold.config import ServeConfig
from tensorfold.plugins import Plugins

__all__ = ["command"]


def command(launch: Launch) -> click.Command:
    """The command, with a flag for each setting of the server and its plugins."""

    def serve(model: str | None, config: ServeConfig) -> None:
        given = config if model is None else dataclasses.replace(config, model=model)
        serve_model(given, launch.plugins)

    return SettingsCommand(
        "serve",
        launch,
        serve,
        help="Serve MODEL: a folder, a .gguf file, ORG/NAME, or a name that a plugin knows; by default the one "
        "that is installed with the server.",
        params=[click.Argument(["model"], required=False)],
    )


def serve_model(config: ServeConfig, plugins: Plugins) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        TensorfoldError: what was asked for cannot be.
    """
    # Imported here, since `tensorfold --help` must not pay for them.
    from tensorfold.cli.application import server_settings, web_application
    from tensorfold.cli.assemble import assemble
    from tensorfold.cli.startup import StartupDisplay, ready_block, tell
    from tensorfold.http import run_server
    from tensorfold.http.listening import check_listening
    from tensorfold.http.request_log import RequestLog
    from tensorfold.observe import configure_logs

    log_format = config.log_format
    if log_format == "auto":
        log_format = "console" if sys.stderr.isatty() else "json"
    configure_logs(log_format, config.log_level)
    for warning in config.warnings:
        tell(f"warning: {warning}")
    for state in plugins.states:
        if state.state == "failed":
            tell(f"warning: plugin {state.kind}/{state.name} is left out: {state.reason}")
    _dump_stacks_on_demand()
    # A taken port or a wrong certificate is told now, not after a minute of reading weights.
    check_listening(server_settings(config))
    request_log = None if config.log_requests is None else RequestLog(config.log_requests)
    with StartupDisplay() as display:
        assembled = assemble(config, plugins, display)
        auth = assembled.catalog.auth_sources
        application = web_application(config, assembled, auth, request_log)
        assembled.engine.start()

    def ready(url: str) -> None:
        if config.log_requests is not None:
            tell(f"warning: every request is written to {config.log_requests}, with its whole prompt")
        tell(f"tensorfold is ready\n{ready_block(assembled, url, auth)}")

    run_server(application, server_settings(config), on_ready=ready)


def _dump_stacks_on_demand() -> None:
    """SIGUSR1 writes what every thread is doing to stderr; the server goes on."""
    if hasattr(signal, "SIGUSR1"):
        faulthandler.register(signal.SIGUSR1, all_threads=True)
