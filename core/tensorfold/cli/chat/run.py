"""The command: finds a server or starts one, and talks."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext

import click

from tensorfold.cli.chat.own_server import Served, own_server
from tensorfold.cli.chat.talk import HELP, Screen, Talk
from tensorfold.cli.client import Address, Client, local_url
from tensorfold.cli.completion import model_of
from tensorfold.cli.early import Launch
from tensorfold.cli.keys import key_option
from tensorfold.cli.options import SettingsCommand
from tensorfold.config import ServeConfig
from tensorfold.errors import ClientError

__all__ = ["command"]

_NOT_OURS = (
    *("host", "port", "grace", "metrics_open", "served_name", "alias", "log_requests"),
    *("unix_socket", "tls_cert", "tls_key", "cors_origin", "allowed_host"),
)
"""Settings of a server that others use."""


def command(launch: Launch) -> click.Command:
    """The command; without `--url` it takes what `tensorfold serve` takes to describe a model."""

    def chat(
        model: str | None,
        url: str | None,
        key: str | None,
        system: str | None,
        reply_limit: int | None,
        config: ServeConfig,
    ) -> int:
        screen = Screen.here(launch.environment)
        with asyncio.Runner() as runner, _server(launch, config, model, url, key, runner) as served:
            client = Client(Address.of(served.url), served.key)
            try:
                name = runner.run(model_of(client))
                screen.note(f"{name} at {served.url}" + (f"\n{HELP}" if screen.interactive else ""))
                Talk(client, name, screen, system=system, limit=reply_limit).run(runner)
            finally:
                runner.run(client.close())
        return 0

    return SettingsCommand(
        "chat",
        launch,
        chat,
        help="Talk to a model: to a running server's, or to one that is served for this conversation alone.",
        params=[
            click.Argument(["model"], required=False),
            click.Option(["--url"], help="A running server; by default the local one if it answers."),
            key_option(),
            click.Option(["--system"], help="Instructions for the whole conversation."),
            click.Option(["--reply-limit"], type=click.IntRange(1), help="The most tokens of a reply."),
        ],
        without=_NOT_OURS,
    )


def _server(
    launch: Launch, config: ServeConfig, model: str | None, url: str | None, key: str | None, runner: asyncio.Runner
) -> AbstractContextManager[Served]:
    """The server that was named, else the local one when no model was named and it answers, else one of our own."""
    if url is not None:
        if model is not None:
            raise click.UsageError("MODEL and --url exclude each other: a running server has its model already")
        return nullcontext(Served(url, key))
    if model is None and config.model is None:
        local = Served(local_url(config), key)
        if runner.run(_answers(local)):
            return nullcontext(local)
    return own_server(launch, config, model)


async def _answers(served: Served) -> bool:
    client = Client(Address.of(served.url), served.key)
    try:
        await model_of(client)
    except ClientError:
        return False
    finally:
        await client.close()
    return True
