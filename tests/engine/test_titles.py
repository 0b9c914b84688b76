"""Requests for a session's title are background work."""

from __future__ import annotations

import asyncio

import pytest

from tensorfold.contracts.engine import EventStream
from tensorfold.engine.titles import asks_for_a_title, in_background
from tensorfold.ir import Chat, Finished, Limits, Message, Request, Role, Text, TextPrompt, Tool
from tensorfold.testing.scripted import Stall
from tensorfold.testing.toy_engine import running, toy_engine

SYSTEM = "Write a short TITLE for this conversation."
TASK = "### Task:\nGenerate a concise, 3-5 word title with an emoji.\n### Chat History:\n<chat_history>\n"


def chat(*turns: tuple[Role, str], tools: tuple[Tool, ...] = ()) -> Request:
    messages = tuple(Message(role, (Text(text),)) for role, text in turns)
    return Request(id="t", prompt=Chat(messages, tools), limits=Limits(max_tokens=3, ignore_eos=True))


@pytest.mark.requirement("T-154")
@pytest.mark.parametrize(
    ("request_", "title"),
    [
        (chat(("system", SYSTEM), ("user", "hello")), True),
        (chat(("developer", SYSTEM), ("user", "hello")), True),
        (chat(("system", "Be brief."), ("user", "a title, please")), False),
        (chat(("system", SYSTEM), ("user", "x" * 4096)), False),
        (chat(("system", SYSTEM), ("user", "hello"), tools=(Tool("f"),)), False),
        (Request(id="t", prompt=TextPrompt(SYSTEM)), False),
        (chat(("user", TASK)), True),
        (chat(("user", TASK + "x" * 9000)), True),
        (chat(("user", TASK.replace("title", "tag"))), False),
        (chat(("user", "### Task:\nSum this up.\n\nIts title is Dune.")), False),
        (chat(("user", TASK), ("assistant", "Dune"), ("user", "Shorter.")), False),
        (chat(("user", TASK), tools=(Tool("f"),)), False),
    ],
    ids=[
        *("system", "developer", "only the user says so", "long", "tools", "raw text"),
        *("task", "long task", "another task", "a task about a title", "a conversation", "task with tools"),
    ],
)
def test_a_title_is_asked_for_by_a_short_system_message_without_tools(request_: Request, title: bool) -> None:
    assert asks_for_a_title(request_) is title
    assert in_background(request_).priority == ("background" if title else "foreground")


@pytest.mark.requirement("T-154")
def test_a_title_waits_behind_the_users_own_request() -> None:
    """Sent first, answered last."""
    stall, ended = Stall(), list[str]()

    async def main() -> None:
        engine = toy_engine(on_step=lambda step: stall(), lanes=1)

        async def read(name: str, stream: EventStream) -> None:
            async for event in stream:
                if isinstance(event, Finished):
                    ended.append(name)

        async with running(engine):
            first = await engine.submit(chat(("user", "x")))
            while not stall.entered.is_set():
                await asyncio.sleep(0.001)
            title = await engine.submit(chat(("system", SYSTEM), ("user", "hello")))
            own = await engine.submit(chat(("user", "hello")))
            stall.release.set()
            await asyncio.gather(read("first", first), read("title", title), read("own", own))

    asyncio.run(main())
    assert ended == ["first", "own", "title"]
