"""A family's tiny checkpoint on a session, and the ways to run it that the contract of families compares."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import HiddenRows, Output, Runner
from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.backend import Session
from tensorfold.contracts.examples import FamilyExample
from tensorfold.contracts.family import Decoder, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import Group
from tensorfold.contracts.step import Kind, Segment
from tensorfold.contracts.tensors import Tensor, TensorInfo
from tensorfold.testing.declared_checkpoint import declared_source
from tensorfold.testing.random_tensors import RandomTensors

__all__ = ["LENGTH", "ROUNDS", "DamagedSource", "Model", "TinyCheckpoint", "drafted", "feed", "logits_of", "slot_of"]

LENGTH = 96
"""Tokens of the sequences compared: more than a page, so that tables, windows and pools are crossed."""


@dataclass(frozen=True, slots=True)
class TinyCheckpoint:
    """What a family is tried on."""

    config: ModelConfig
    source: TensorSource

    @classmethod
    def of(cls, example: FamilyExample, family: ModelFamily) -> TinyCheckpoint:
        """With random weights of an example's shapes, or of those that the family asks for."""
        config = ModelConfig(example.config, {}, "config.json")
        if example.tensors is None:
            return cls(config, declared_source(family, example.config))
        return cls(config, RandomTensors(example.tensors))


class _Borrowed(Runner[Any]):
    """A runner that leaves its session open."""

    def close(self) -> None:
        return


class Model:
    """A family's tiny checkpoint on one session, and the ways to run it that the contract compares."""

    def __init__(self, family: ModelFamily, checkpoint: TinyCheckpoint, session: Session[Any]) -> None:
        self.geometry = family.geometry(checkpoint.config)
        self.decoder: Decoder[Any] = load_decoder(family, checkpoint.config, checkpoint.source, session.packer)
        self.session = session

    def runner(self) -> Runner[Any]:
        """A fresh one, with room for four sequences."""
        return self._runner(Runner, None)

    def borrowed(self) -> Runner[Any]:
        """The same with short chunks, for an engine: the session outlives it."""
        return self._runner(_Borrowed, 16)

    def _runner(self, kind: type[Runner[Any]], chunk: int | None) -> Runner[Any]:
        context = min(self.geometry.window, 256)
        plan = plan_memory(self.geometry, self.session, lanes=4, context=context, budget=1 << 28, chunk=chunk)
        return kind(self.decoder, self.session, self.geometry, lanes=4, pages=plan.pages, identity="tiny", chunk=chunk)

    def tokens(self, count: int, seed: int = 0) -> tuple[int, ...]:
        """A sequence."""
        drawn = np.random.default_rng(seed).integers(0, self.geometry.vocabulary, count)
        return tuple(int(token) for token in drawn)


def slot_of(runner: Runner[Any]) -> int:
    slot = runner.acquire()
    assert slot is not None, "the runner has no free lane"
    return slot


def logits_of(runner: Runner[Any], output: Output[Any], segment: int = 0) -> NDArray[np.float32]:
    first, last = output.bounds[segment]
    return runner.logits(output, range(first, last))


def feed(
    runner: Runner[Any], slot: int, tokens: Sequence[int], pieces: Sequence[int], kind: Kind
) -> NDArray[np.float32]:
    """Give a slot these tokens in pieces of these sizes, the last one again and again, and commit all: `[n, V]`."""
    logits: list[NDArray[np.float32]] = []
    done = 0
    while done < len(tokens):
        size = pieces[min(len(logits), len(pieces) - 1)]
        part = tuple(tokens[done : done + size])
        output = runner.forward([Segment(slot, part, runner.length(slot), want="all", kind=kind)])
        logits.append(logits_of(runner, output))
        runner.commit(slot, runner.length(slot) + len(part))
        done += len(part)
    return np.concatenate(logits)


def drafted(
    runner: Runner[Any], tokens: Sequence[int], *, further: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The target's logits and the draft head's, round by round, with `further` drafted rows in each that are dropped."""
    slot = slot_of(runner)
    group: Group = "draft"
    target: list[NDArray[np.float32]] = []
    drafts: list[NDArray[np.float32]] = []
    done = 0
    for rows in (30, 4, 6):
        output = runner.forward([Segment(slot, tuple(tokens[done : done + rows]), done, want="all")])
        target.append(logits_of(runner, output))
        runner.commit(slot, done + rows)
        ahead = Segment(slot, tuple(tokens[done + 1 : done + rows + 1]), done, want="all")
        output = runner.draft([ahead], [HiddenRows(output, 0, rows)])
        drafts.append(logits_of(runner, output))
        done += rows
        runner.commit(slot, done, group)
        snapshot = runner.snapshot(slot)
        for more in range(further):
            likeliest = int(logits_of(runner, output)[-1].argmax())
            last = HiddenRows(_last_row(output), 0, 1)
            output = runner.draft([Segment(slot, (likeliest,), done + more, want="all")], [last])
            if more + 1 < further:
                runner.commit(slot, done + more + 1, group)
            else:
                runner.commit(slot, done + more, group)
        if further > 1:
            runner.restore(slot, snapshot)
        runner.drop(snapshot)
    runner.release(slot)
    return np.concatenate(target), np.concatenate(drafts)


def _last_row(output: Output[Any]) -> Output[Any]:
    """The same rows, seen from the last of the only segment."""
    last = output.spans[0][1]
    return Output(output.hidden, output.picked, output.bounds, ((last - 1, last),))


ROUNDS: tuple[tuple[int, int], ...] = ((1, 3), (0, 4), (2, 2), (3, 0), (1, 5), (4, 1), (1, 0), (2, 6), (5, 2), (1, 1))
"""Right and wrong rows of each step."""


class DamagedSource:
    """A source with one tensor missing, one misshapen and one of another model; notes whether a weight was read."""

    def __init__(
        self, source: TensorSource, missing: str, misshapen: str, foreign: str, steering: tuple[str, ...]
    ) -> None:
        self._source = source
        self._missing = missing
        self._misshapen = misshapen
        self._foreign = foreign
        self._steering = steering
        self.was_read = False

    def names(self) -> Iterator[str]:
        yield from (name for name in self._source.names() if name != self._missing)
        yield self._foreign

    def info(self, name: str) -> TensorInfo:
        if name == self._foreign:
            return TensorInfo(name, (3,), "F32", 12)
        info = self._source.info(name)
        if name != self._misshapen:
            return info
        return TensorInfo(name, (*info.shape[:-1], info.shape[-1] + 1), info.kind, info.stored_bytes)

    def read(self, name: str) -> Tensor:
        self.was_read |= not any(fnmatch.fnmatchcase(name, each) for each in self._steering)
        return self._source.read(name)
