"""What fails in an engine, be it a round, a plugin or the device, costs the requests that it was for and no others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.compute.runner import Runner
from tensorfold.contracts.chat import ChatFormat, ReplyParser
from tensorfold.contracts.policy import Running, Waiting
from tensorfold.contracts.states import TableKey
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import BackendError, GenerationFailed
from tensorfold.ir import Chat, Failed, Limits, Message, Queued, Request, Started, Text
from tensorfold.testing.scripted import Script, ScriptedDecoder, ScriptedSession, Stall, raises, scripted_geometry
from tensorfold.testing.toy_engine import answer, events, running, toy_engine
from tensorfold.testing.toy_parser import ThinkingFormat
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

from .one_reply import REPLY, entered, ids, request, script, text, until


def test_a_failed_round_ends_its_requests_and_the_next_one_is_served() -> None:
    """ST-11: the text so far, then `Failed` with a 500; the server lives, and its lanes are free again."""

    async def main() -> None:
        broken = script("broken", at={3: raises(RuntimeError("the kernel failed"))})
        engine = toy_engine([broken, script("good")], lanes=1)
        async with running(engine):
            sent = await events(engine, request("broken"))
            assert isinstance(sent[0], Queued) and isinstance(sent[1], Started)
            assert text(sent) == "a r"
            last = sent[-1]
            assert isinstance(last, Failed)
            assert (last.status, last.error_type) == (500, "server_error")
            assert "kernel" not in last.message, "what the backend says is for the log"
            assert text(await events(engine, request("good"))) == bytes(REPLY).decode()
            assert engine.status().healthy
            assert engine.status().details["requests_failed"] == 1

    asyncio.run(main())


@pytest.mark.requirement("T-218", "T-259", "T-261")
def test_requests_outside_a_failed_step_go_on() -> None:
    """A prompt whose chunk fails takes no running reply with it."""

    async def main() -> None:
        stall = Stall()
        engine = toy_engine(
            [
                script("steady", at={2: stall}),
                script("a prompt of two chunks", at={-3: raises(RuntimeError("no"))}),
            ]
        )
        async with running(engine):
            steady = await engine.submit(request("steady"))
            await entered(stall)
            broken = asyncio.ensure_future(events(engine, request("a prompt of two chunks")))
            await until(lambda: engine.status().running + engine.status().waiting == 2)
            stall.release.set()
            assert isinstance((await broken)[-1], Failed)
            assert text([event async for event in steady]) == bytes(REPLY).decode()

    asyncio.run(main())


def test_logits_that_are_not_finite_fail_their_request_alone() -> None:
    """A reply beside it, in the same round, is complete."""

    async def main() -> None:
        stall = Stall()
        engine = toy_engine([script("sick", nan_at=4), script("well", at={0: stall})])
        async with running(engine):
            well = asyncio.ensure_future(events(engine, request("well")))
            await entered(stall)
            sick = asyncio.ensure_future(events(engine, request("sick")))
            await until(lambda: engine.status().waiting + engine.status().running == 2)
            stall.release.set()
            sent = await sick
            assert text(sent) == "a re"
            assert isinstance(sent[-1], Failed) and "not finite" in sent[-1].message
            assert text(await well) == bytes(REPLY).decode()

    asyncio.run(main())


def test_a_request_that_failed_is_an_error_to_who_folds_it() -> None:
    """A whole answer of a failed stream is the failure's own status."""

    async def main() -> None:
        engine = toy_engine([script("one", at={1: raises(RuntimeError("x"))})])
        async with running(engine):
            with pytest.raises(GenerationFailed) as caught:
                await answer(engine, request("one"))
            assert caught.value.status == 500

    asyncio.run(main())


class Fragile(ThinkingFormat):
    """A parser that fails in the middle of a reply."""

    def parser(self, request: Request, prompt_tail: str) -> ReplyParser:
        parser = super().parser(request, prompt_tail)
        feed = parser.feed

        def failing(text: str, tokens: Any) -> Any:
            if "!" in text:
                raise ValueError("the format's own fault")
            return feed(text, tokens)

        parser.feed = failing  # type: ignore[method-assign]
        return parser


class NoParser(ThinkingFormat):
    """A format that cannot make a parser."""

    def parser(self, request: Request, prompt_tail: str) -> ReplyParser:
        raise ValueError("the format's own fault")


@pytest.mark.parametrize("chat", [Fragile(), NoParser()])
def test_a_plugin_that_fails_costs_one_request(chat: ChatFormat) -> None:
    """Whatever a family's parser raises."""

    async def main() -> None:
        conversation = Chat((Message("user", (Text("x"),)),))
        engine = toy_engine([Script(ids("user: x\nassistant: "), tuple(b"ab!c")), script("good")], chat=chat, lanes=1)
        async with running(engine):
            sent = await events(engine, Request(id="c", prompt=conversation))
            assert isinstance(sent[-1], Failed) and "ValueError" in sent[-1].message
            assert text(await events(engine, request("good"))) == bytes(REPLY).decode()

    asyncio.run(main())


class NoOrder(DefaultPolicy):
    """A policy that raises."""

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        raise RuntimeError("no order")


class Forgetful(DefaultPolicy):
    """A policy that forgets all but one prompt."""

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        return waiting[:1]


class Stranger(DefaultPolicy):
    """A policy that gives up somebody who is not there."""

    def victim(self, running: Sequence[Running], wanting: Waiting | None) -> Running | None:
        return Running("nobody", "foreground", 0.0, 0)


@pytest.mark.parametrize("policy", [NoOrder(), Forgetful(), Stranger()])
def test_a_policy_that_fails_is_replaced_by_the_default_one(policy: DefaultPolicy) -> None:
    """Requests are served, also when memory is short, though the policy plugin is broken."""

    async def main() -> None:
        prompts = [f"prompt {number}" for number in range(6)]
        reply = bytes(range(32, 127)) * 2
        arrived = Stall()
        engine = toy_engine(
            [script(prompt, reply) for prompt in prompts],
            policy=policy,
            on_step=lambda step: arrived(),
            lanes=3,
            positions=512,
            settings=EngineSettings(growth=1),
        )
        async with running(engine):
            streams = [await engine.submit(request(prompt, limits=Limits(max_tokens=250))) for prompt in prompts]
            arrived.release.set()
            sent = [[event async for event in stream] for stream in streams]
            assert engine.status().details["preemptions_total"] != 0
        assert [text(each) for each in sent] == [reply.decode()] * 6

    asyncio.run(main())


def test_a_turn_that_fails_outside_any_request_ends_them_all_and_the_engine_lives() -> None:
    """The last line of defence: nobody waits for ever, and the next request is served."""
    broken = threading.Event()

    def clock() -> float:
        if threading.current_thread().name == "tensorfold-engine" and broken.is_set():
            broken.clear()
            raise RuntimeError("the engine's own fault")
        return time.monotonic()

    async def main() -> None:
        engine = toy_engine([script("one"), script("good")], clock=clock)
        async with running(engine):
            broken.set()
            sent = await events(engine, request("one"))
            assert isinstance(sent[-1], Failed) and "scheduling" in sent[-1].message
            assert text(await events(engine, request("good"))) == bytes(REPLY).decode()
            details = engine.status().details
            assert details["positions_free"] == details["positions_total"]

    asyncio.run(main())


class Stubborn(Runner[Any]):
    """A runner whose device does not take slots back."""

    def release(self, slot: int) -> None:
        raise BackendError("the device is gone")


def test_a_device_that_does_not_take_a_slot_back_is_unhealthy() -> None:
    """The request that used it is answered all the same."""

    async def main() -> None:
        tokenizer = ToyTokenizer()
        geometry = scripted_geometry(vocabulary=tokenizer.size)
        runner = Stubborn(
            ScriptedDecoder(geometry, [script("one")]),
            ScriptedSession(),
            geometry,
            lanes=2,
            pages={TableKey("main", None): 8},
            identity="x",
        )
        engine = LocalEngine(runner, prompts=ToyPrompts(tokenizer), tokenizer=tokenizer, chat=PlainFormat())
        async with running(engine):
            sent = await events(engine, request("one", limits=Limits(max_tokens=len(REPLY))))
            assert text(sent) == bytes(REPLY).decode()
            assert not engine.status().healthy
            assert "the device is gone" in (engine.status().problem or "")

    asyncio.run(main())


def test_a_step_that_does_not_return_is_unhealthy_until_it_does() -> None:
    """The status is read while the engine thread is blocked, and tells what it is blocked in."""

    async def main() -> None:
        now = [0.0]
        stall = Stall()
        engine = toy_engine([script("one", at={2: stall})], clock=lambda: now[0])
        async with running(engine):
            stream = await engine.submit(request("one"))
            await entered(stall)
            assert engine.status().healthy
            now[0] = 121.0
            status = engine.status()
            assert not status.healthy
            assert status.problem == "a round of replies has been running for 121 s"
            stall.release.set()
            assert text([event async for event in stream]) == bytes(REPLY).decode()
            await until(lambda: engine.status().healthy)

    asyncio.run(main())
