"""A reply that is a copy: tokens a second with drafts over without (goal: 1.8), and over what the windows allow (0.8)."""

from __future__ import annotations

import itertools

from exact_setup import Model, Timed, arguments, load, middle, request, run, timed, without_cache

from tensorfold.contracts.step import Segment
from tensorfold.engine.engine import LocalEngine

TEXT = """The rain came down on the old stone wall,
the river rose and the boats went by,
the children ran to the market hall
and the grey geese crossed the evening sky.
The miller's wife had a lamp in her hand,
she called to the men on the farther shore,
the ferry was lost in the drifting sand
and nobody came to her open door.

"""
BEGUN = 0.3
"""Of the text, the third time."""


async def main() -> None:
    wanted = arguments(__doc__ or "", repeats=5, reply=57)
    model = load(wanted)
    ids = model.ids(TEXT * 2 + TEXT[: int(len(TEXT) * BEGUN)])
    rates: dict[bool, list[float]] = {True: [], False: []}
    kept = drafted = rounds = 0
    copied = 0.0
    shas: set[str] = set()
    async with model.engine(without_cache()) as engine:
        for repeat in range(wanted.repeats + 1):
            for drafts in (True, False):
                before = _rounds(engine)
                # The first reply of each kind warms up, and tells its tokens; log-probabilities cost time of their own.
                found = await timed(
                    model, engine, request(ids, wanted.reply, draft=drafts, logprobs=None if repeat else 0)
                )
                usage, timings = found.answer.usage, found.answer.timings
                shas.add(found.answer.token_sha[0])
                copied = copied if repeat else _copied(ids, found)
                if repeat:
                    rates[drafts].append((usage.completion_tokens - 1) / timings.decode)
                if drafts and repeat:
                    kept += usage.completion_tokens - 1
                    drafted += usage.drafted_tokens
                    rounds += _rounds(engine) - before
    print(f"{copied:.0%} of the reply's windows of 8 tokens stand in the prompt; {len(shas)} token_sha")
    assert copied >= 0.9, "the reply is no copy, and says nothing about copies"
    assert len(shas) == 1, "drafts change the reply"
    on, off = middle(rates[True]), middle(rates[False])
    print(f"drafts off {off:.1f}, on {on:.1f} tokens/s: {on / off:.2f} (goal 1.8)")
    a_round, rows = kept / rounds, 1 + round(drafted / rounds)
    cost = _cost(model, ids, rows)
    print(f"{a_round:.2f} tokens kept a round; a window of {rows} rows costs {cost:.2f} single steps")
    print(
        f"that allows {a_round / cost:.2f} times drafts off; reached: {on / off / (a_round / cost):.2f} of it (goal 0.8)"
    )


def _rounds(engine: LocalEngine) -> int:
    return int(str(engine.status().details["rounds_total"]))


def _copied(ids: tuple[int, ...], found: Timed) -> float:
    """The share of the reply's windows of 8 tokens that stand in the prompt."""
    text = (*ids, *(token.id for token in found.answer.choices[0].tokens))
    there = {text[at : at + 8] for at in range(len(ids) - 8)}
    windows = [text[place : place + 8] for place in range(len(ids) - 8, len(text) - 8)]
    return sum(window in there for window in windows) / len(windows)


def _cost(model: Model, ids: tuple[int, ...], rows: int) -> float:
    """A step of so many rows over a step of one, in turns, with the logits that both read."""
    runner = model.runner(lanes=1)
    slot = runner.acquire()
    assert slot is not None
    for start in range(0, len(ids), runner.chunk):
        part = ids[start : start + runner.chunk]
        runner.forward([Segment(slot, part, start, want="none", kind="chunk")])
        runner.commit(slot, start + len(part))
    times: dict[int, list[float]] = {1: [], rows: []}
    for count in itertools.islice(itertools.cycle((1, rows)), 24):
        began = model.clock()
        output = runner.forward([Segment(slot, ids[:count], len(ids), want="all")])
        runner.logits(output, range(count))
        times[count].append(model.clock() - began)
        runner.commit(slot, len(ids))
    return middle(times[rows][2:]) / middle(times[1][2:])


run(main)
