"""The conversation: what is typed, what the model says, and Ctrl-C, which stops a reply and not the program."""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from tensorfold.cli.client import Client
from tensorfold.cli.completion import Done, Piece, stream
from tensorfold.errors import ClientError
from tensorfold.ir import JSON

__all__ = ["HELP", "Screen", "Talk"]

HELP = """\
/reset   forget the conversation so far
/help    show this
/exit    leave (Ctrl-D does too)
Ctrl-C stops a reply."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Where the conversation is shown: replies on stdout, all else on stderr."""

    interactive: bool
    """Somebody types: show a prompt, and say how to leave."""
    styled: bool
    """The terminal knows colours."""

    @classmethod
    def here(cls, environment: Mapping[str, str]) -> Screen:
        """This process's own terminal, or pipe."""
        interactive = sys.stdin.isatty() and sys.stdout.isatty()
        if interactive:
            with suppress(ImportError):  # not on every platform
                # For what its import does to `input`: arrow keys, and lines typed before.
                importlib.import_module("readline")
        plain = environment.get("TERM", "dumb") == "dumb" or "NO_COLOR" in environment
        return cls(interactive, sys.stderr.isatty() and sys.stdout.isatty() and not plain)

    def say(self, text: str) -> None:
        """More of a reply."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Something about the conversation."""
        sys.stderr.write(f"\x1b[2m{text}\x1b[0m\n" if self.styled else f"{text}\n")
        sys.stderr.flush()

    def ask(self) -> str:
        """The next line that is typed.

        Raises:
            EOFError: there is none.
        """
        return input("> " if self.interactive else "")


@dataclass(slots=True)
class _Reply:
    """What one reply has brought so far."""

    text: list[str] = field(default_factory=list[str])
    began: float = field(default_factory=time.monotonic)
    first: float | None = None
    last: float = 0.0
    tokens: int | None = None
    reason: str | None = None


class Talk:
    """One conversation with one server."""

    def __init__(self, client: Client, model: str, screen: Screen, *, system: str | None, limit: int | None) -> None:
        self._client = client
        self._model = model
        self._screen = screen
        self._limit = limit
        self._beginning: list[Mapping[str, JSON]] = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._beginning)

    def run(self, runner: asyncio.Runner) -> None:
        """Until the input ends or `/exit`."""
        while True:
            try:
                line = self._screen.ask().strip()
            except EOFError:
                if self._screen.interactive:
                    self._screen.say("\n")
                return
            except KeyboardInterrupt:
                self._screen.note("\nCtrl-D or /exit leaves.")
                continue
            match line:
                case "":
                    continue
                case "/exit" | "/quit":
                    return
                case "/help":
                    self._screen.note(HELP)
                case "/reset":
                    self._messages = list(self._beginning)
                    self._screen.note("The conversation begins anew.")
                case _ if line.startswith("/") and " " not in line:
                    self._screen.note(f"There is no {line}.\n{HELP}")
                case _:
                    self._turn(line, runner)

    def _turn(self, line: str, runner: asyncio.Runner) -> None:
        """One message and its reply; what was said until Ctrl-C stays in the conversation."""
        self._messages.append({"role": "user", "content": line})
        reply = _Reply()
        stopped = False
        try:
            runner.run(self._stream(reply))
        except KeyboardInterrupt:
            stopped = True
        except ClientError as error:
            self._screen.note(f"{error}\nThe message is not part of the conversation; /reset begins anew.")
        if reply.text:
            self._screen.say("\n")
            self._messages.append({"role": "assistant", "content": "".join(reply.text)})
        else:
            self._messages.pop()
        self._screen.note(_figures(reply, stopped))

    async def _stream(self, reply: _Reply) -> None:
        body: dict[str, JSON] = {"model": self._model, "messages": [dict(each) for each in self._messages]}
        if self._limit is not None:
            body["max_tokens"] = self._limit
        show = self._shown()
        async with aclosing(stream(self._client, "/v1/chat/completions", body)) as updates:
            async for update in updates:
                match update:
                    case Piece(text, thinking):
                        reply.last = time.monotonic()
                        reply.first = reply.first or reply.last
                        if not thinking:
                            reply.text.append(text)
                        show(text, thinking)
                    case Done(reason, _, tokens):
                        reply.reason, reply.tokens = reason, tokens

    def _shown(self) -> Callable[[str, bool], None]:
        """Writes pieces; reasoning is dimmed, or set off by a line where there are no colours."""
        was_thinking = False

        def show(text: str, thinking: bool) -> None:
            nonlocal was_thinking
            if was_thinking and not thinking:
                self._screen.say("\n")
            was_thinking = thinking
            self._screen.say(f"\x1b[2m{text}\x1b[0m" if thinking and self._screen.styled else text)

        return show


def _figures(reply: _Reply, stopped: bool) -> str:
    """`[42 tokens, 9.8 tokens/s, first after 0.41 s]`."""
    parts: list[str] = ["stopped"] if stopped else []
    if reply.tokens is not None:
        parts.append(f"{reply.tokens} token{'' if reply.tokens == 1 else 's'}")
    if reply.first is not None:
        if reply.tokens is not None and reply.tokens > 1 and reply.last > reply.first:
            parts.append(f"{(reply.tokens - 1) / (reply.last - reply.first):.1f} tokens/s")
        parts.append(f"first after {reply.first - reply.began:.2f} s")
    if reply.reason == "length":
        parts.append("cut at the limit")
    return f"[{', '.join(parts) or 'no reply'}]"
