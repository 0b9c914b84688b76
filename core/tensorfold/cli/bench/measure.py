"""One request, timed from the moment it is sent."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass

from tensorfold.cli.client import Client
from tensorfold.cli.completion import Done, Piece, stream
from tensorfold.errors import ClientError
from tensorfold.ir import JSON

__all__ = ["Sample", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one request took."""

    sent: float
    """Monotonic seconds."""
    ended: float
    prompt_tokens: int = 0
    reply_tokens: int = 0
    pieces: tuple[float, ...] = ()
    """When each piece of text came, in monotonic seconds."""
    problem: str | None = None
    """Why there is no reply."""

    @property
    def first(self) -> float | None:
        """Seconds to the first piece."""
        return self.pieces[0] - self.sent if self.pieces else None

    @property
    def whole(self) -> float:
        """Seconds to the end."""
        return self.ended - self.sent

    @property
    def between(self) -> float | None:
        """Seconds from one token to the next, on average; pieces may hold several tokens."""
        if len(self.pieces) < 2 or self.reply_tokens < 2:
            return None
        return (self.pieces[-1] - self.pieces[0]) / (self.reply_tokens - 1)


async def measure(client: Client, path: str, body: Mapping[str, JSON]) -> Sample:
    """Send one request and wait for its end; a failure is a sample too."""
    sent = time.monotonic()
    pieces: list[float] = []
    try:
        async with aclosing(stream(client, path, body)) as updates:
            async for update in updates:
                match update:
                    case Piece():
                        pieces.append(time.monotonic())
                    case Done(_, prompt_tokens, reply_tokens):
                        return Sample(
                            sent=sent,
                            ended=time.monotonic(),
                            prompt_tokens=prompt_tokens or 0,
                            # A server that counts no tokens usually sends one a piece.
                            reply_tokens=len(pieces) if reply_tokens is None else reply_tokens,
                            pieces=tuple(pieces),
                        )
    except ClientError as error:
        return Sample(sent=sent, ended=time.monotonic(), pieces=tuple(pieces), problem=str(error))
    return Sample(sent=sent, ended=time.monotonic(), pieces=tuple(pieces), problem="the reply had no end")
