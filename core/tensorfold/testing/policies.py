"""What every scheduling policy has to pass: subclass `SchedulerPolicyContract` in a test module and give it a policy.

    from tensorfold.testing.policies import SchedulerPolicyContract

    class TestAcme(SchedulerPolicyContract):
        @pytest.fixture
        def policy(self) -> SchedulerPolicy:
            return AcmePolicy()

It sees many made-up queues, and then schedules the real engine over a scripted model.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Literal, TypeAlias

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from tensorfold.contracts.engine import Engine
from tensorfold.contracts.policy import Load, Running, SchedulerPolicy, Waiting
from tensorfold.errors import Rejected
from tensorfold.ir import Answer, ChoiceAnswer, Limits, Request, Sampling, TextPrompt
from tensorfold.testing.scripted import Script
from tensorfold.testing.toy_engine import answer, running, toy_engine

__all__ = ["SchedulerPolicyContract"]

Priority: TypeAlias = Literal["foreground", "background"]

QUEUES = 200
"""Made-up queues that a policy is asked about."""
PATIENCE = 1000
"""Chunks after which a prompt must have had one, however many others have come meanwhile."""
CHUNK = 512
IDLE = Load(running=0, waiting=0, lanes=4, free_tokens=100_000)


def _queue(rng: random.Random, length: int) -> list[Waiting]:
    return [
        Waiting(
            id=f"w{number}",
            priority=_priority(rng),
            arrived=rng.uniform(0, 100),
            tokens_left=rng.choice([1, 30, 512, 5000]),
            passed_over=rng.choice([0, 0, 1, 7, 8, 100]),
            started=rng.random() < 0.3,
        )
        for number in range(length)
    ]


def _streams(rng: random.Random, length: int) -> list[Running]:
    return [
        Running(f"r{number}", _priority(rng), rng.uniform(0, 100), rng.randrange(1, 9000)) for number in range(length)
    ]


def _priority(rng: random.Random) -> Priority:
    return "background" if rng.random() < 0.3 else "foreground"


def _asked() -> Iterator[tuple[random.Random, list[Waiting]]]:
    for seed in range(QUEUES):
        rng = random.Random(seed)
        yield rng, _queue(rng, rng.choice([0, 1, 2, 3, 8, 40]))


class SchedulerPolicyContract:
    """Subclass it as `TestSomething` and give a `policy` fixture."""

    @pytest.fixture
    def policy(self) -> SchedulerPolicy:
        """A fresh policy."""
        raise NotImplementedError

    def test_it_has_a_name(self, policy: SchedulerPolicy) -> None:
        """`--scheduler` picks it.

        Fix: give the policy a `name` of letters, digits and hyphens.
        """
        assert policy.name.replace("-", "").replace("_", "").isalnum()

    def test_an_order_is_a_permutation_of_those_who_wait(self, policy: SchedulerPolicy) -> None:
        """Nobody is lost and nobody comes twice, whatever the queue.

        Fix: return every object of `waiting` once, for instance with `sorted(waiting, key=...)`.
        """
        for _, waiting in _asked():
            assert sorted(map(id, policy.order(tuple(waiting)))) == sorted(map(id, waiting))

    def test_an_order_follows_from_the_numbers_alone(self, policy: SchedulerPolicy) -> None:
        """Asked twice, it says the same twice.

        Fix: decide by what `Waiting` holds, without a clock and without chance.
        """
        for _, waiting in _asked():
            assert list(policy.order(tuple(waiting))) == list(policy.order(tuple(waiting)))

    def test_a_victim_is_one_of_those_who_run(self, policy: SchedulerPolicy) -> None:
        """Or nobody; where nobody runs, nobody yields.

        Fix: return an object of `running`, or None.
        """
        for rng, waiting in _asked():
            streams = _streams(rng, rng.choice([0, 1, 2, 9]))
            for wanting in (None, *waiting[:2]):
                victim = policy.victim(tuple(streams), wanting)
                assert victim is None or any(victim is each for each in streams)

    def test_somebody_yields_when_memory_is_short(self, policy: SchedulerPolicy) -> None:
        """Asked on behalf of the older streams (`wanting` is None), it names somebody: else nothing could go on.

        Fix: when `wanting` is None and anybody runs, return one of them, for instance the newest.
        """
        for rng, _ in _asked():
            streams = _streams(rng, rng.choice([2, 3, 9]))
            assert policy.victim(tuple(streams), None) is not None

    def test_an_idle_server_lets_a_request_in(self, policy: SchedulerPolicy) -> None:
        """A policy that never admits serves nobody.

        Fix: `admit` returns without raising while nothing runs and nothing waits.
        """
        policy.admit(_request("idle"), IDLE)

    def test_a_refusal_is_a_rejection(self, policy: SchedulerPolicy) -> None:
        """However full the server is, `admit` returns or raises `Rejected`, which clients know how to wait for.

        Fix: raise `tensorfold.errors.Rejected`, with a `retry_after` in seconds, and nothing else.
        """
        for count in (0, 1, 10, 1000, 1_000_000):
            refused = _refused(policy, Load(running=4, waiting=count, lanes=4, free_tokens=0))
            assert refused is None or (refused.status in (429, 503) and refused.message)

    @pytest.mark.parametrize("tokens", [30, CHUNK, 40 * CHUNK])
    def test_nobody_is_passed_over_for_ever(self, policy: SchedulerPolicy, tokens: int) -> None:
        """A prompt has its turn although shorter ones and longer ones keep coming, foreground and background alike.

        Fix: in `order`, let `passed_over` outweigh everything else once it is large.
        """
        priorities: tuple[Priority, ...] = ("foreground", "background")
        for priority in priorities:
            assert _waits(policy, replace(_patient(tokens), priority=priority)) < PATIENCE

    def test_replies_through_the_engine_are_those_of_the_default_policy(self, policy: SchedulerPolicy) -> None:
        """Twelve requests over two lanes and little memory all end, with the same replies, and the policy never raises.

        Fix: a policy that raises is replaced by the default one, and the log says why; look at the claims above first.
        """
        with capture_logs() as logs:
            replies = asyncio.run(asyncio.wait_for(_served(policy), 60))
        assert not [each for each in logs if each["log_level"] == "error"]
        assert replies == asyncio.run(_served(None))


def _request(name: str, priority: Priority = "foreground") -> Request:
    return Request(
        id=name,
        prompt=TextPrompt(_prompt(name)),
        sampling=Sampling(temperature=0.0),
        limits=Limits(max_tokens=40),
        priority=priority,
    )


def _prompt(name: str) -> str:
    return f"the prompt of {name} " * (1 + len(name) % 3)


def _refused(policy: SchedulerPolicy, load: Load) -> Rejected | None:
    try:
        policy.admit(_request("full"), load)
    except Rejected as error:
        return error
    return None


def _patient(tokens: int) -> Waiting:
    return Waiting("patient", "foreground", arrived=50.0, tokens_left=tokens, passed_over=0, started=False)


def _waits(policy: SchedulerPolicy, patient: Waiting) -> int:
    """How many chunks others are given before the first of this one."""
    rng = random.Random(patient.tokens_left)
    queue = [patient]
    for turn in range(PATIENCE):
        # One shorter and one longer than any: shortest first and longest first would each pass it over for ever.
        for number, tokens in enumerate((rng.randrange(1, 20), rng.randrange(30_000, 40_000))):
            queue.append(Waiting(f"n{turn}.{number}", "foreground", 60.0 + turn, tokens, 0, False))
        first = policy.order(tuple(queue))[0]
        if first is patient:
            return turn
        queue.remove(first)
        patient = replace(patient, passed_over=patient.passed_over + 1)
        left = first.tokens_left - CHUNK
        queue = [patient, *(replace(each, passed_over=each.passed_over + 1) for each in queue[1:])]
        if left > 0:
            queue.append(replace(first, tokens_left=left, passed_over=0, started=True))
        # Only so many wait: a queue is bounded.
        del queue[1:-40]
    return PATIENCE


async def _answered(engine: Engine, request: Request) -> Answer:
    """Its answer, asked for again for as long as the policy refuses it."""
    while True:
        try:
            return await answer(engine, request)
        except Rejected:
            await asyncio.sleep(0.005)


async def _served(policy: SchedulerPolicy | None) -> list[tuple[tuple[str, ...], tuple[ChoiceAnswer, ...]]]:
    names = [f"request number {number}" + " with more" * (number % 4) for number in range(12)]
    scripts = [Script(tuple(_prompt(name).encode()), tuple(f"the reply to {name}".encode())) for name in names]
    engine = toy_engine(scripts, lanes=2, positions=1024, policy=policy)
    async with running(engine):
        requests = [_request(name, "background" if len(name) % 2 else "foreground") for name in names]
        answers = await asyncio.gather(*(_answered(engine, each) for each in requests))
    return [(each.token_sha, each.choices) for each in answers]
