"""Failures, cancellation, fullness, shutdown: what one request suffers, others do not notice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.compute.runner import Runner
from tensorfold.contracts.chat import ChatFormat, ReplyParser
from tensorfold.contracts.policy import Load, Running, Waiting
from tensorfold.contracts.states import TableKey
from tensorfold.contracts.step import Step
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import BackendError, GenerationFailed, Rejected
from tensorfold.ir import (
    Answer,
    Chat,
    Event,
    Failed,
    Finished,
    Limits,
    Message,
    Queued,
    Request,
    Started,
    Stopped,
    Text,
    TextDelta,
    TextPrompt,
    fold,
)
from tensorfold.testing.scripted import (
    Script,
    ScriptedDecoder,
    ScriptedSession,
    Stall,
    raises,
    scripted_geometry,
)
from tensorfold.testing.toy_engine import answer, events, running, toy_engine
from tensorfold.testing.toy_parser import ThinkingFormat
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

REPLY = tuple(b"a reply of some length")


def ids(prompt: str) -> tuple[int, ...]:
    return tuple(prompt.encode())


def request(prompt: str, **fields: Any) -> Request:
    return Request(id=prompt, prompt=TextPrompt(prompt), **fields)


def script(prompt: str, reply: Sequence[int] = REPLY, **fields: Any) -> Script:
    return Script(ids(prompt), tuple(reply), **fields)


def text(sent: Sequence[Event]) -> str:
    return "".join(event.text for event in sent if isinstance(event, TextDelta))


async def until(claim: Callable[[], bool]) -> None:
    """Wait for something that the engine thread does; a claim that never holds is a failed test."""
    for _ in range(2000):
        if claim():
            return
        await asyncio.sleep(0.005)
    pytest.fail("the engine never came to it")


async def entered(stall: Stall) -> None:
    await until(stall.entered.is_set)


def threads() -> set[str]:
    return {thread.name.rsplit("_", 1)[0] for thread in threading.enumerate() if "tensorfold" in thread.name}


# ---- failures ---------------------------------------------------------------------------------------------


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


# ---- cancellation -----------------------------------------------------------------------------------------


@pytest.mark.requirement("T-157", "T-158")
@pytest.mark.parametrize("state", ["waiting", "prefilling", "running"])
def test_a_cancelled_request_ends_at_the_next_round_in_every_state(state: str) -> None:
    """Its lane is free at once, and the stream ends with `abort`."""

    async def main() -> list[Event]:
        stall = Stall()
        long = "a prompt of three chunks, to be cancelled"
        stalls = {"waiting": {}, "prefilling": {-len(long) + 3: stall}, "running": {4: stall}}
        engine = toy_engine([script(long, at=stalls[state]), script("first", at={0: stall}), script("next")], lanes=1)
        async with running(engine):
            first = await engine.submit(request("first")) if state == "waiting" else None
            stream = await engine.submit(request(long))
            await entered(stall)
            stream.cancel()
            stall.release.set()
            if first is not None:
                assert text([event async for event in first]) == bytes(REPLY).decode()
            sent = [event async for event in stream]
            assert text(await events(engine, request("next"))) == bytes(REPLY).decode()
            status = engine.status()
            assert (status.running, status.waiting) == (0, 0)
            assert status.details["positions_free"] == status.details["positions_total"]
        return sent

    sent = asyncio.run(main())
    assert sent[-2] == Stopped(0, "abort")
    assert isinstance(sent[-1], Finished)
    assert text(sent) == {"waiting": "", "prefilling": "", "running": "a rep"}[state]
    assert any(isinstance(event, Started) for event in sent) == (state != "waiting")


def test_twenty_dropped_streams_leave_the_engine_as_it_was() -> None:
    """LC-01, MT-01: streams dropped at any moment, unread; then nothing runs or waits, and a new request is served."""

    async def main() -> None:
        prompts = [f"prompt number {number} with some chunks" for number in range(20)]
        engine = toy_engine([*map(script, prompts), script("next")], lanes=3)
        async with running(engine):
            for number, prompt in enumerate(prompts):
                stream = await engine.submit(request(prompt))
                for _ in range(number % 5):
                    await anext(stream)
                stream.cancel()
            await until(lambda: not engine.status().running + engine.status().waiting)
            assert text(await events(engine, request("next"))) == bytes(REPLY).decode()
            details = engine.status().details
            assert details["positions_free"] == details["positions_total"]

    asyncio.run(main())


def test_a_submit_that_is_cancelled_queues_nothing() -> None:
    """A client that leaves while its prompt is read has left no request behind."""

    async def main() -> None:
        engine = toy_engine([script("one")])
        async with running(engine):
            task = asyncio.ensure_future(engine.submit(request("one")))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert engine.status().waiting == 0
            assert engine.status().details["requests_total"] == 0

    asyncio.run(main())


def test_a_request_past_its_deadline_is_dropped() -> None:
    """Nobody waits for it any more."""

    async def main() -> None:
        engine = toy_engine([script("late"), script("good")])
        async with running(engine):
            sent = await events(engine, request("late", deadline=1.0))
            assert Stopped(0, "abort") in sent and text(sent) == ""
            assert text(await events(engine, request("good"))) == bytes(REPLY).decode()

    asyncio.run(main())


def test_deadlines_pass_while_replies_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reply ends at the first turn after its own, with what it has; those without one, or a later one, go on."""
    clock = SimpleNamespace(now=50.0)
    monkeypatch.setattr("tensorfold.engine.loop.time", SimpleNamespace(time=lambda: clock.now))

    async def main() -> None:
        first, second = Stall(), Stall()
        engine = toy_engine([script("soon", at={3: first}), script("later", at={9: second}), script("never")])
        async with running(engine):
            deadlines = {"soon": 100.0, "later": 200.0, "never": None}
            streams = [await engine.submit(request(name, deadline=each)) for name, each in deadlines.items()]
            await entered(first)
            clock.now = 150.0
            first.release.set()
            await entered(second)
            clock.now = 250.0
            second.release.set()
            sent = [[event async for event in stream] for stream in streams]
        reply = bytes(REPLY).decode()
        assert Stopped(0, "abort") in sent[0] and Stopped(0, "abort") in sent[1]
        assert 0 < len(text(sent[0])) <= len(text(sent[1])) < len(reply)
        assert reply.startswith(text(sent[1])) and text(sent[2]) == reply

    asyncio.run(main())


# ---- fullness ---------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_at_once_with_a_time_to_wait() -> None:
    """One runs, one waits, the third is a 503; when there is room again it is served."""

    async def main() -> None:
        stall = Stall()
        engine = toy_engine(
            [script("first", at={1: stall}), script("second"), script("third")],
            lanes=1,
            policy=DefaultPolicy(queue=1),
        )
        async with running(engine):
            first = await engine.submit(request("first"))
            await entered(stall)
            second = await engine.submit(request("second"))
            with pytest.raises(Rejected) as caught:
                await engine.submit(request("third"))
            assert caught.value.status == 503 and caught.value.retry_after
            assert (engine.status().running, engine.status().waiting) == (1, 1)
            stall.release.set()
            for stream in (first, second):
                assert text([event async for event in stream]) == bytes(REPLY).decode()
            assert text(await events(engine, request("third"))) == bytes(REPLY).decode()

    asyncio.run(main())


class Watching(DefaultPolicy):
    """Remembers the loads that it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[Load] = []

    def admit(self, request: Request, load: Load) -> None:
        self.loads.append(load)


def test_policies_see_requests_that_have_not_reached_the_engine_yet() -> None:
    """A burst that arrives between two rounds is counted request by request."""

    async def main() -> None:
        policy = Watching()
        engine = toy_engine([script("one")], policy=policy)
        async with running(engine):
            streams = await asyncio.gather(*(engine.submit(request("one")) for _ in range(3)))
            assert [load.running + load.waiting for load in policy.loads] == [0, 1, 2]
            for stream in streams:
                stream.cancel()

    asyncio.run(main())


# ---- health and shutdown ----------------------------------------------------------------------------------


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


def test_closing_lets_running_replies_finish() -> None:
    """Within the grace the reply is whole, and new requests are refused."""

    async def main() -> None:
        stall = Stall()
        engine = toy_engine([script("one", at={2: stall})])
        engine.start()
        stream = await engine.submit(request("one"))
        await entered(stall)
        closing = asyncio.ensure_future(engine.close(60))
        await asyncio.sleep(0)
        with pytest.raises(Rejected, match="shutting down"):
            await engine.submit(request("two"))
        stall.release.set()
        assert text([event async for event in stream]) == bytes(REPLY).decode()
        await closing

    asyncio.run(main())
    assert not threads()


@pytest.mark.parametrize("choices", [1, 3])
def test_closing_aborts_what_does_not_finish(choices: int) -> None:
    """LC-04: every open stream gets `Stopped` with `abort` for each choice and `Finished`; no thread is left."""

    async def main() -> list[list[Event]]:
        waits = threading.Event()

        def dawdle(step: Step[Any]) -> None:
            waits.wait(0.002)

        engine = toy_engine([script(prompt, bytes(2000)) for prompt in ("one", "two")], lanes=1, on_step=dawdle)
        engine.start()
        streams = [await engine.submit(request(prompt, choices=choices)) for prompt in ("one", "two")]
        await until(lambda: engine.status().details["completion_tokens_total"] != 0)
        await engine.close(0.01)
        return [[event async for event in stream] for stream in streams]

    for sent in asyncio.run(main()):
        assert {event for event in sent if isinstance(event, Stopped)} == {
            Stopped(choice, "abort") for choice in range(choices)
        }
        assert isinstance(sent[-1], Finished)
        assert len(fold(sent).choices) == choices
    assert not threads()


def test_closing_again_cuts_the_grace_short() -> None:
    """The second signal ends at once what the first one let finish; both return."""

    async def main() -> list[Event]:
        stall = Stall()
        engine = toy_engine([script("one", at={2: stall})])
        engine.start()
        stream = await engine.submit(request("one"))
        await entered(stall)
        patient = asyncio.ensure_future(engine.close(3600))
        await asyncio.sleep(0)
        hasty = asyncio.ensure_future(engine.close(0))
        await asyncio.sleep(0.01)
        stall.release.set()
        await asyncio.gather(patient, hasty)
        return [event async for event in stream]

    sent = asyncio.run(main())
    assert Stopped(0, "abort") in sent or Stopped(0, "end") in sent
    assert isinstance(sent[-1], Finished)
    assert not threads()


def test_closing_does_not_wait_for_a_step_that_never_returns() -> None:
    """Streams end with `Failed`, and the process may go."""

    async def main() -> None:
        stall = Stall()
        engine = toy_engine([script("one", at={2: stall})], settings=EngineSettings(stop_limit=0.05))
        engine.start()
        stream = await engine.submit(request("one"))
        await entered(stall)
        await engine.close(0)
        assert isinstance([event async for event in stream][-1], Failed)
        stall.release.set()
        await until(lambda: not threads())

    asyncio.run(main())


def test_an_engine_that_never_started_can_be_closed() -> None:
    """A start that fails halfway leaves nothing behind."""

    async def main() -> None:
        await toy_engine().close(0)

    asyncio.run(main())
    assert not threads()


def test_an_engine_whose_thread_has_died_says_so_and_refuses() -> None:
    """Open streams end with `Failed`, health is bad, and no request waits for ever."""

    async def main() -> None:
        engine = toy_engine([script("one", at={2: raises(SystemExit())})])
        engine.start()
        sent = await events(engine, request("one"))
        assert isinstance(sent[-1], Failed)
        await until(lambda: not engine.status().healthy)
        assert "engine thread has ended" in (engine.status().problem or "")
        with pytest.raises(Rejected):
            await engine.submit(request("one"))
        await engine.close(0)

    asyncio.run(main())


def test_a_prompt_sent_three_times_gives_three_equal_replies() -> None:
    """EX-03: also a prompt of one token with a reply of one token."""

    async def main() -> list[Answer]:
        engine = toy_engine([])
        async with running(engine):
            limits = Limits(max_tokens=1)
            one = [await answer(engine, request("H", limits=limits)) for _ in range(3)]
            two = [await answer(engine, request("Hello", limits=Limits(max_tokens=16))) for _ in range(3)]
            assert engine.status().healthy
        return [*one, *two]

    answers = asyncio.run(main())
    assert len({each.token_sha for each in answers[:3]}) == len({each.token_sha for each in answers[3:]}) == 1
    assert all(each.usage.cached_tokens < each.usage.prompt_tokens for each in answers)


def test_a_request_that_failed_is_an_error_to_who_folds_it() -> None:
    """A whole answer of a failed stream is the failure's own status."""

    async def main() -> None:
        engine = toy_engine([script("one", at={1: raises(RuntimeError("x"))})])
        async with running(engine):
            with pytest.raises(GenerationFailed) as caught:
                await answer(engine, request("one"))
            assert caught.value.status == 500

    asyncio.run(main())
