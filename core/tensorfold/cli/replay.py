"""`tensorfold replay`: ask a server again what a file of `--log-requests` holds, and tell whether the tokens are the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from tensorfold.cli.client import Address, Client, local_url
from tensorfold.cli.early import Launch
from tensorfold.cli.keys import key_option
from tensorfold.errors import ConfigError
from tensorfold.ir import JSON

if TYPE_CHECKING:
    from tensorfold.observe.recorded import RecordedRequest

__all__ = ["command", "token_shas"]


def command(launch: Launch) -> click.Command:
    """The command; exit code 1 when the server refuses, or answers other tokens."""

    @click.command(
        "replay",
        help="Send a request that --log-requests wrote to a running server, print the raw answer as it comes, and "
        "compare its tokens with those of then.",
        params=[key_option()],
    )
    @click.argument("file", type=click.Path(path_type=Path))
    @click.option("--url", help="The server; by default the one that the settings describe.")
    def replay(file: Path, url: str | None, key: str | None) -> int:
        from tensorfold.observe.recorded import read_record  # with the log's library, which `--help` needs not

        record = read_record(file)
        address = Address.of(url or local_url(launch.config({})))
        status, answer = asyncio.run(_ask(record, Client(address, key)))
        click.echo("" if answer.endswith(b"\n") else "\n", nl=False)
        then = () if record.answer is None else record.answer.token_sha
        same, verdict = _verdict(status, then, token_shas(answer))
        click.echo(verdict, err=True)
        return 0 if same else 1

    return replay


async def _ask(record: RecordedRequest, client: Client) -> tuple[int, bytes]:
    """The status, and the answer, which is written out as it comes."""
    pieces: list[bytes] = []
    try:
        async with client.request(record.method, record.path, _content(record)) as reply:
            async for chunk in reply.chunks():
                pieces.append(chunk)
                click.echo(chunk, nl=False)
            return reply.status, b"".join(pieces)
    finally:
        await client.close()


def _content(record: RecordedRequest) -> bytes:
    if record.body_text is not None:
        return record.body_text.encode("utf-8", "surrogatepass")
    if record.body is None:
        raise ConfigError("the file holds no body to send")
    return json.dumps(record.body).encode()


def _verdict(status: int, then: tuple[str, ...], now: tuple[str, ...]) -> tuple[bool, str]:
    if status != 200:
        return False, f"the server answered {status}"
    if not then:
        return True, "nothing to compare: the file tells no token_sha"
    if not now:
        return False, "the answer tells no token_sha: is this server tensorfold, and did the reply finish?"
    if now == then[: len(now)]:
        return True, f"the same tokens: token_sha {', '.join(now)}"
    return False, f"other tokens: token_sha was {', '.join(then)} and is {', '.join(now)}"


def token_shas(answer: bytes) -> tuple[str, ...]:
    """What an answer says of its tokens, whole or streamed, in whatever API: the last it tells; nothing: it tells none."""
    found: tuple[str, ...] = ()
    for document in _documents(answer.decode("utf-8", "replace")):
        found = _shas(document) or found
    return found


def _documents(text: str) -> Iterator[JSON]:
    """The answer itself, or what its lines hold: events, or JSON lines."""
    try:
        yield cast("JSON", json.loads(text))
        return
    except ValueError:
        pass
    for line in text.splitlines():
        try:
            yield cast("JSON", json.loads(line.removeprefix("data:")))
        except ValueError:
            continue


def _shas(value: JSON) -> tuple[str, ...]:
    match value:
        case {"tensorfold": {"choice_token_sha": [*each]}}:
            return tuple(str(sha) for sha in each)
        case {"tensorfold": {"token_sha": str(sha)}}:
            return (sha,)
        case dict():
            return next((found for each in value.values() if (found := _shas(each))), ())
        case _:
            return ()
