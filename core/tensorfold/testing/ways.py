"""The ways in which one sequence can come to its logits, for comparison with another implementation of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import HiddenRows, Output, Runner
from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import Decoder, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.step import Kind, Segment

__all__ = ["WAYS", "Loaded", "Reply", "Way", "beside_the_head", "drafted_reply", "serial_reply"]

Logits: TypeAlias = NDArray[np.float32]


class Loaded:
    """A checkpoint on a session."""

    def __init__(self, family: ModelFamily, config: ModelConfig, source: TensorSource, session: Session[Any]) -> None:
        self.geometry = family.geometry(config)
        self.decoder: Decoder[Any] = load_decoder(family, config, source, session.packer)
        self._session = session

    def runner(self) -> Runner[Any]:
        """A fresh one, with room for two sequences."""
        context = min(self.geometry.window, 256)
        plan = plan_memory(self.geometry, self._session, lanes=2, context=context, budget=1 << 28)
        return Runner(self.decoder, self._session, self.geometry, lanes=2, pages=plan.pages, identity="ways")


class _Sequence:
    """One slot of a runner, and the logits of the tokens that were kept."""

    def __init__(self, runner: Runner[Any]) -> None:
        slot = runner.acquire()
        assert slot is not None
        self.slot = slot
        self.runner = runner
        self.logits: list[Logits] = []

    def segment(self, tokens: tuple[int, ...], kind: Kind) -> Segment:
        return Segment(self.slot, tokens, self.runner.length(self.slot), want="all", kind=kind)

    def feed(self, tokens: tuple[int, ...], kind: Kind, *, wrong: tuple[int, ...] = ()) -> None:
        """Run these tokens, with wrong drafts behind them that are dropped."""
        output = self.runner.forward([self.segment((*tokens, *wrong), kind)])
        self.logits.append(self.runner.logits(output, range(len(tokens))))
        self.runner.commit(self.slot, self.runner.length(self.slot) + len(tokens))

    @property
    def all(self) -> Logits:
        return np.concatenate(self.logits)


def _at_once(loaded: Loaded, tokens: tuple[int, ...]) -> Logits:
    sequence = _Sequence(loaded.runner())
    sequence.feed(tokens, "chunk")
    return sequence.all


def _in_chunks_then_one_by_one(loaded: Loaded, tokens: tuple[int, ...]) -> Logits:
    sequence, cut = _Sequence(loaded.runner()), 2 * len(tokens) // 3
    sequence.feed(tokens[: cut // 2 + 1], "chunk")
    sequence.feed(tokens[cut // 2 + 1 : cut], "chunk")
    for token in tokens[cut:]:
        sequence.feed((token,), "rows")
    return sequence.all


def _beside_another(loaded: Loaded, tokens: tuple[int, ...]) -> Logits:
    """In every step a sequence of another length has rows as well."""
    runner = loaded.runner()
    other, sequence = _Sequence(runner), _Sequence(runner)
    other.feed(tokens[5::-1], "chunk")
    for start in range(0, len(tokens), 4):
        mine, theirs = (
            sequence.segment(tokens[start : start + 4], "rows"),
            other.segment(tokens[start : start + 2], "rows"),
        )
        output = runner.forward([theirs, mine])
        sequence.logits.append(runner.logits(output, range(*output.bounds[1])))
        for segment in (mine, theirs):
            runner.commit(segment.slot, segment.start + len(segment.tokens))
    return sequence.all


def _with_wrong_drafts(loaded: Loaded, tokens: tuple[int, ...]) -> Logits:
    """Three wrong rows behind every two right ones."""
    sequence, cut = _Sequence(loaded.runner()), len(tokens) // 2
    sequence.feed(tokens[:cut], "chunk")
    for start in range(cut, len(tokens), 2):
        sequence.feed(tokens[start : start + 2], "rows", wrong=tokens[:3])
    return sequence.all


Way: TypeAlias = Callable[[Loaded, tuple[int, ...]], Logits]
"""From tokens to `[n, V]`."""

WAYS: Final[Mapping[str, Way]] = MappingProxyType(
    {
        "at once": _at_once,
        "in chunks, then one by one": _in_chunks_then_one_by_one,
        "beside another sequence": _beside_another,
        "with wrong drafts": _with_wrong_drafts,
    }
)
"""All of them give what the model says of the sequence."""


# ---- the draft head, and greedy replies without and with it ------------------------------------------------


def beside_the_head(loaded: Loaded, tokens: tuple[int, ...]) -> tuple[Logits, Logits]:
    """The target's logits of all tokens but the last, and its draft head's of all but the first, beside its rows."""
    runner = loaded.runner()
    sequence = _Sequence(runner)
    output = runner.forward([sequence.segment(tokens[:-1], "rows")])
    target = runner.logits(output, range(output.rows))
    runner.commit(sequence.slot, output.rows)
    head = runner.draft([Segment(sequence.slot, tokens[1:], 0, want="all")], [HiddenRows(output, 0, len(tokens) - 1)])
    return target, runner.logits(head, range(head.rows))


@dataclass(frozen=True, slots=True)
class Reply:
    """A greedy reply."""

    tokens: tuple[int, ...]
    logits: Logits
    """`[n, V]`: what each token was chosen by."""
    accepted: int = 0
    """How many of them were drafted."""


def serial_reply(loaded: Loaded, prompt: tuple[int, ...], count: int) -> Reply:
    """One token a step."""
    sequence = _Sequence(loaded.runner())
    sequence.feed(prompt, "chunk")
    logits = [sequence.logits[0][-1]]
    tokens = [int(logits[0].argmax())]
    while len(tokens) < count:
        sequence.feed((tokens[-1],), "rows")
        logits.append(sequence.logits[-1][0])
        tokens.append(int(logits[-1].argmax()))
    return Reply(tuple(tokens), np.stack(logits))


def drafted_reply(loaded: Loaded, prompt: tuple[int, ...], count: int, ahead: int) -> Reply:
    """`ahead` tokens drafted by the checkpoint's head in each step, those kept that the target would have chosen."""
    runner = loaded.runner()
    sequence = _Sequence(runner)
    output = runner.forward([sequence.segment(prompt, "chunk")])
    runner.commit(sequence.slot, len(prompt))
    logits = [runner.logits(output, [len(prompt) - 1])[0]]
    tokens = [int(logits[0].argmax())]
    followed, accepted = [*prompt[1:], tokens[0]], 0
    while len(tokens) < count:
        drafts = _drafts(runner, sequence.slot, followed, HiddenRows(output, 0, len(followed)), ahead)
        output = runner.forward([sequence.segment((tokens[-1], *drafts), "rows")])
        seen = runner.logits(output, range(1 + len(drafts)))
        followed = list[int]()
        for row, draft in enumerate((*drafts, None)):
            logits.append(seen[row])
            followed.append(int(seen[row].argmax()))
            if followed[-1] != draft:
                break
        tokens.extend(followed)
        accepted += len(followed) - 1
        runner.commit(sequence.slot, runner.length(sequence.slot) + len(followed))
    return Reply(tuple(tokens[:count]), np.stack(logits[:count]), accepted)


def _drafts(
    runner: Runner[Any], slot: int, followed: Sequence[int], hidden: HiddenRows[Any], ahead: int
) -> tuple[int, ...]:
    """The head takes the target's rows with the tokens that followed them, and goes on from its own rows; those it
    forgets again."""

    def run(tokens: Sequence[int], rows: HiddenRows[Any]) -> tuple[Output[Any], int]:
        start = runner.length(slot, "draft")
        output = runner.draft([Segment(slot, tuple(tokens), start, want="last")], [rows])
        runner.commit(slot, start + len(tokens), "draft")
        return output, int(runner.logits(output, [0])[0].argmax())

    output, token = run(followed, hidden)
    snapshot = runner.snapshot(slot)
    drafts = [token]
    while len(drafts) < ahead:
        last = output.spans[0][1]
        own = Output(output.hidden, output.picked, output.bounds, ((last - 1, last),))
        output, token = run([token], HiddenRows(own, 0, 1))
        drafts.append(token)
    runner.restore(slot, snapshot)
    runner.drop(snapshot)
    return tuple(drafts)
