"""`tensorfold inspect`: what a file of `--log-requests` holds, before it is sent to anybody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensorfold.cli.early import Launch
from tensorfold.ir import JSON

if TYPE_CHECKING:
    from tensorfold.observe.recorded import RecordedAnswer, RecordedRequest

__all__ = ["command"]

SHOWN = 120
"""Characters of a text that are shown without `--full`."""
_LONG = frozenset(("messages", "input", "prompt", "system", "instructions", "tools"))
"""Fields that have lines of their own."""


def command(launch: Launch) -> click.Command:
    """The command."""

    @click.command("inspect", help="Show a request that --log-requests wrote: its settings, its texts, its answer.")
    @click.argument("file", type=click.Path(path_type=Path))
    @click.option("--full", is_flag=True, help="Show every text whole.")
    def inspect(file: Path, full: bool) -> None:
        from tensorfold.observe.recorded import read_record  # with the log's library, which `--help` needs not

        record = read_record(file)
        click.echo("\n".join(_lines(record, None if full else SHOWN)))

    return inspect


def _lines(record: RecordedRequest, limit: int | None) -> Iterator[str]:
    yield f"{record.method} {record.path}  {record.time}  {record.id}"
    yield f"served   {record.model} by {record.server}" + (f", for {record.label}" if record.label else "")
    for name, value in record.headers.items():
        yield f"header   {name}: {value}"
    body = record.body
    if isinstance(body, dict):
        yield from (f"setting  {name} = {_short(value, limit)}" for name, value in body.items() if name not in _LONG)
        for name in body:
            if name in _LONG:
                yield from _texts(name, body[name], limit)
    else:
        yield f"body     {_short(record.body_text if body is None else body, limit)}"
    yield from _answer(record.answer)
    yield "It holds whole prompts: read it with --full before you share it."


def _texts(name: str, value: JSON, limit: int | None) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{name.ljust(8)} {_short(value, limit)}"
        return
    for number, each in enumerate(value):
        yield f"{name}[{number}]  {_short(each, limit)}"


def _short(value: JSON, limit: int | None) -> str:
    text = value if isinstance(value, str) else _compact(value)
    # One line each, and nothing that a terminal would obey.
    text = "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
    if limit is None or len(text) <= limit:
        return text
    return f"{text[:limit]}... ({len(text):,} characters)"


def _compact(value: JSON) -> str:
    match value:
        case {"role": str(role), "content": str(content), **others} if not others:
            return f"{role}: {content}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _answer(answer: RecordedAnswer | None) -> Iterator[str]:
    if answer is None:
        yield "answer   none: the server was still computing it when it last wrote this file"
        return
    yield f"answer   {answer.status} {answer.reason}, after {answer.seconds:g} s"
    if answer.usage is not None:
        usage = answer.usage
        yield f"tokens   {usage.prompt_tokens} of prompt, {usage.cached_tokens} of them kept; {usage.completion_tokens} of reply"
    for number, sha in enumerate(answer.token_sha):
        yield f"sha[{number}]   {sha}"
