"""The command: one server, or two in turns."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypedDict, Unpack

import click

from tensorfold.cli.bench.load import Load, Target, prepare, run
from tensorfold.cli.bench.report import Figures, as_json, table
from tensorfold.cli.bench.workload import Endpoint, Workload
from tensorfold.cli.client import Address, Client
from tensorfold.cli.early import Launch
from tensorfold.cli.foreign import foreign_commands
from tensorfold.cli.keys import key_option

__all__ = ["command"]

_TURNS = 4
"""With two servers: stretches of load for each, in turns, so that what drifts on the machine meets both alike."""


def command(launch: Launch) -> click.Command:
    """The command."""

    @click.pass_context
    def bench(
        context: click.Context,
        url: str,
        against: str | None,
        key: str | None,
        model: str | None,
        as_data: bool,
        **workload: Unpack[_Load],
    ) -> int:
        if context.invoked_subcommand is not None:
            return 0
        wanted = _workload(workload)
        clients = [Client(Address.of(each), key) for each in (url, against) if each is not None]
        figures = asyncio.run(_measure(clients, model, wanted))
        click.echo(json.dumps(as_json(figures), indent=2) if as_data else table(figures))
        for each in figures:
            for problem in each.problems:
                click.echo(f"{each.server}: {problem}", err=True)
        return 1 if any(each.failed for each in figures) else 0

    return click.Group(
        "bench",
        commands=foreign_commands(launch.plugins, "bench", ()),
        callback=bench,
        params=_options(),
        invoke_without_command=True,
        subcommand_metavar="[COMMAND [ARGS]...]",
        help="Put load on a server and measure it; any OpenAI-compatible server will do.",
    )


class _Load(TypedDict):
    """The options that describe the load."""

    endpoint: Endpoint
    requests: int
    concurrency: int | None
    rate: float | None
    prompt_tokens: int
    reply_tokens: int
    temperature: float
    seed: int


def _workload(load: _Load) -> Workload:
    if load["rate"] is not None and load["concurrency"] is not None:
        raise click.UsageError("--concurrency and --rate exclude each other")
    return Workload(**load)


def _options() -> list[click.Parameter]:
    some = click.IntRange(1)
    return [
        click.Option(["--url"], default="http://127.0.0.1:8080", show_default=True, help="The server."),
        click.Option(["--against"], help="A second server, to compare with: both get the same load in turns."),
        key_option(),
        click.Option(["--model"], help="The model's ID; by default the first that each server lists."),
        click.Option(
            ["--endpoint"], type=click.Choice(["completions", "chat"]), default="completions", show_default=True
        ),
        click.Option(["--requests"], type=some, default=16, show_default=True, help="How many are sent."),
        click.Option(["--concurrency"], type=some, help="How many at once.  [default: 1]"),
        click.Option(["--rate"], type=click.FloatRange(0, min_open=True), help="Instead: so many a second, at random."),
        click.Option(["--prompt-tokens"], type=some, default=128, show_default=True),
        click.Option(["--reply-tokens"], type=some, default=64, show_default=True),
        click.Option(["--temperature"], type=float, default=0.0, show_default=True),
        click.Option(["--seed"], type=int, default=0, show_default=True, help="Chooses prompts and arrivals."),
        click.Option(["--json", "as_data"], is_flag=True, help="Print JSON."),
    ]


async def _measure(clients: Sequence[Client], model: str | None, workload: Workload) -> list[Figures]:
    """Load on every server, in turns when there are several."""
    progress = _progress(workload.requests * len(clients))
    try:
        targets: list[Target] = [await prepare(client, model, workload) for client in clients]
        loads: list[list[Load]] = [[] for _ in targets]
        for part in _parts(workload.requests, 1 if len(targets) == 1 else _TURNS):
            for target, done in zip(targets, loads, strict=True):
                done.append(await run(target, workload, part, progress))
        return [
            Figures.of(str(target.client.address), target.model, done)
            for target, done in zip(targets, loads, strict=True)
        ]
    finally:
        for client in clients:
            await client.close()


def _parts(requests: int, turns: int) -> list[range]:
    """The requests' numbers in `turns` stretches of nearly equal length."""
    edges = [round(requests * turn / turns) for turn in range(turns + 1)]
    return [range(start, end) for start, end in pairwise(edges) if end > start]


def _progress(total: int) -> Callable[[], None]:
    """Counts answered requests on a terminal's stderr."""
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        if sys.stderr.isatty():
            click.echo(f"\r{done} of {total} requests", err=True, nl=done == total)

    return told
