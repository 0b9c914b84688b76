"""Many requests: a closed loop of so many at once, or an open loop of so many a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tensorfold.cli.bench.measure import Sample, measure
from tensorfold.cli.bench.workload import Workload
from tensorfold.cli.client import Client
from tensorfold.cli.completion import model_of
from tensorfold.errors import ClientError

__all__ = ["Load", "Target", "prepare", "run"]

_TRIAL_WORDS = 64


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and how to fill a prompt for it."""

    client: Client
    model: str
    words: int
    """Words of a prompt that has the workload's length in this model's tokens."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a stretch of load gave."""

    samples: tuple[Sample, ...]
    seconds: float
    """From the first request to the last end."""


async def prepare(client: Client, model: str | None, workload: Workload) -> Target:
    """Find the model, wake the server up, and learn how many words make a prompt of the workload's length.

    Raises:
        ClientError: the server is not there, or refuses.
    """
    name = model or await model_of(client)
    trial = Workload(endpoint=workload.endpoint, reply_tokens=1)
    counts: list[int] = []
    for words in (_TRIAL_WORDS, 2 * _TRIAL_WORDS):
        sample = await measure(client, trial.path, trial.body(name, -words, words))
        if sample.problem is not None:
            raise ClientError(sample.problem)
        counts.append(sample.prompt_tokens)
    each = (counts[1] - counts[0]) / _TRIAL_WORDS or 1.0
    template = counts[0] - each * _TRIAL_WORDS
    return Target(client, name, max(1, round((workload.prompt_tokens - template) / each)))


async def run(target: Target, workload: Workload, indices: Sequence[int], told: Callable[[], None]) -> Load:
    """Send these requests in the workload's way; `told` is called after each."""
    began = time.monotonic()

    async def one(index: int) -> Sample:
        sample = await measure(target.client, workload.path, workload.body(target.model, index, target.words))
        told()
        return sample

    if workload.rate is None:
        samples = await _closed_loop(one, workload.concurrency or 1, indices)
    else:
        samples = await _open_loop(one, workload, indices)
    ended = max((sample.ended for sample in samples), default=began)
    return Load(tuple(samples), ended - began)


async def _closed_loop(
    one: Callable[[int], Awaitable[Sample]], concurrency: int, indices: Sequence[int]
) -> list[Sample]:
    waiting = iter(indices)
    samples: list[Sample] = []

    async def worker() -> None:
        for index in waiting:
            samples.append(await one(index))

    async with asyncio.TaskGroup() as group:
        for _ in range(min(concurrency, len(indices))):
            group.create_task(worker())
    return samples


async def _open_loop(
    one: Callable[[int], Awaitable[Sample]], workload: Workload, indices: Sequence[int]
) -> list[Sample]:
    moments = workload.arrivals()
    began = time.monotonic() - moments[indices[0]]

    async def at(index: int) -> Sample:
        await asyncio.sleep(began + moments[index] - time.monotonic())
        return await one(index)

    return await asyncio.gather(*(at(index) for index in indices))
