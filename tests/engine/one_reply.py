"""One reply of some length: requests for it, the model's script, and waiting for what the engine's thread does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tensorfold.ir import Event, Request, TextDelta, TextPrompt
from tensorfold.testing.scripted import Script, Stall

__all__ = ["REPLY", "entered", "ids", "request", "script", "text", "until"]
REPLY = tuple(b"a reply of some length")


def ids(prompt: str) -> tuple[int, ...]:
    """Its tokens: one a byte."""
    return tuple(prompt.encode())


def request(prompt: str, **fields: Any) -> Request:
    """For a prompt's text, which is its id too."""
    return Request(id=prompt, prompt=TextPrompt(prompt), **fields)


def script(prompt: str, reply: Sequence[int] = REPLY, **fields: Any) -> Script:
    """What the model says to a prompt."""
    return Script(ids(prompt), tuple(reply), **fields)


def text(sent: Sequence[Event]) -> str:
    """All of it, joined."""
    return "".join(event.text for event in sent if isinstance(event, TextDelta))


async def until(claim: Callable[[], bool]) -> None:
    """Wait for something that the engine thread does; a claim that never holds is a failed test."""
    for _ in range(2000):
        if claim():
            return
        await asyncio.sleep(0.005)
    pytest.fail("the engine never came to it")


async def entered(stall: Stall) -> None:
    """Wait until the engine is held there."""
    await until(stall.entered.is_set)
