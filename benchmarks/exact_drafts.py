"""A reply that is a copy: tokens a second with drafts over without (goal: 1.8), and over what the windows allow (0.8)."""

from __future__ import annotations

import itertools

from exact_setup import arguments, load, middle, request, run, timed, without_cache

from tensorfold.contracts.step import Segment

CODE = """def area(w, h):
    return w * h


def volume(w, h, d):
    return area(w, h) * d


def surface(w, h, d):
    return 2 * (area(w, h) + area(w, d) + area(h, d))


"""


async def main() -> None:
    wanted = arguments(__doc__ or "", repeats=3, reply=64)
    model = load(wanted.backend)
    ids = model.ids(CODE * 2 + CODE[:60])
    rates: dict[bool, list[float]] = {True: [], False: []}
    kept = drafted = rounds = 0
    shas: set[str] = set()
    reply: tuple[int, ...] = ()
    async with model.engine(without_cache()) as engine:
        for repeat in range(wanted.repeats + 1):
            for drafts in (True, False):
                before = engine.status().details["rounds_total"]
                found = await timed(engine, request(ids, wanted.reply, draft=drafts, logprobs=0))
                usage, timings = found.answer.usage, found.answer.timings
                shas.add(found.answer.token_sha[0])
                reply = tuple(token.id for token in found.answer.choices[0].tokens)
                if repeat:
                    rates[drafts].append((usage.completion_tokens - 1) / timings.decode)
                if drafts and repeat:
                    kept += usage.completion_tokens - 1
                    drafted += usage.drafted_tokens
                    rounds += int(str(engine.status().details["rounds_total"])) - int(str(before))
    text = (*ids, *reply)
    windows = [text[place : place + 8] for place in range(len(ids) - 8, len(text) - 8)]
    copied = sum(any(text[at : at + 8] == window for at in range(len(ids) - 8)) for window in windows) / len(windows)
    print(f"{copied:.0%} of the reply's windows of 8 tokens stand in the prompt; {len(shas)} token_sha")
    on, off = middle(rates[True]), middle(rates[False])
    print(f"drafts off {off:.1f}, on {on:.1f} tokens/s: {on / off:.2f}")
    a_round = kept / rounds
    costs = _cost(model, ids, 1 + round(drafted / rounds))
    print(
        f"{a_round:.2f} tokens kept a round; a window of {1 + round(drafted / rounds)} rows costs {costs:.2f} single steps"
    )
    print(f"that allows {a_round / costs:.2f} times drafts off; reached: {on / off / (a_round / costs):.2f} of it")


def _cost(model: object, ids: tuple[int, ...], rows: int) -> float:
    """A step of so many rows over a step of one, in turns, with the logits that both read."""
    import time

    runner = model.runner(lanes=1)  # type: ignore[attr-defined]
    slot = runner.acquire()
    for start in range(0, len(ids), runner.chunk):
        part = ids[start : start + runner.chunk]
        runner.forward([Segment(slot, part, start, want="none", kind="chunk")])
        runner.commit(slot, start + len(part))
    times: dict[int, list[float]] = {1: [], rows: []}
    for count in itertools.islice(itertools.cycle((1, rows)), 24):
        began = time.perf_counter()
        output = runner.forward([Segment(slot, ids[:count], len(ids), want="all")])
        runner.logits(output, range(count))
        times[count].append(time.perf_counter() - began)
        runner.commit(slot, len(ids))
    return middle(times[rows][2:]) / middle(times[1][2:])


run(main)
