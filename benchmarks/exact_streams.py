"""Eight streams over one (goal: 2.2 times the tokens a second), and a short prompt beside a long one (1.5 chunks)."""

from __future__ import annotations

import asyncio

from exact_setup import Model, arguments, load, middle, request, run, timed, without_cache

from tensorfold.engine.engine import LocalEngine

WORDS = "the sea a hill red stone old river and then we went home by the long road under "


async def main() -> None:
    wanted = arguments(__doc__ or "", repeats=3, reply=24, streams=8, long=4000)
    model = load(wanted)
    prompts = [model.ids(f"Story {number}: {WORDS}") for number in range(wanted.streams)]
    one: list[float] = []
    all_together: list[float] = []
    async with model.engine(without_cache(), drafts=False) as engine:
        for repeat in range(wanted.repeats + 1):
            alone = await timed(model, engine, request(prompts[0], wanted.reply))
            began = model.clock()
            together = await asyncio.gather(*(timed(model, engine, request(ids, wanted.reply)) for ids in prompts))
            seconds = model.clock() - began
            assert together[0].answer.token_sha == alone.answer.token_sha
            if repeat:
                one.append(wanted.reply / alone.whole)
                all_together.append(wanted.reply * wanted.streams / seconds)
        rates = middle(one), middle(all_together)
        print(
            f"one stream {rates[0]:.1f}, {wanted.streams} streams {rates[1]:.1f} tokens/s: {rates[1] / rates[0]:.2f}"
            " (goal 2.2)"
        )
        await _beside(model, engine, wanted.long, wanted.repeats)


async def _beside(model: Model, engine: LocalEngine, length: int, repeats: int) -> None:
    """A prompt of 20 tokens that comes while a long one is computed, at the start of one of its chunks."""
    text = model.ids(WORDS * 400)
    chunk_times: list[float] = []
    firsts: list[float] = []
    for repeat in range(repeats):
        before = _chunks(engine)
        long = asyncio.ensure_future(timed(model, engine, request((repeat, *text)[:length], 2)))
        while _chunks(engine) < before + 2:
            await asyncio.sleep(0.001)
        began, chunks = model.clock(), _chunks(engine)
        short = await timed(model, engine, request((7, *text[:19]), 2))
        firsts.append(short.first)
        await long
        chunk_times.append((model.clock() - began) / (_chunks(engine) - chunks))
    share = middle(firsts) / middle(chunk_times)
    print(
        f"short prompt beside {length} tokens: first token {middle(firsts):.3f} s, a chunk {middle(chunk_times):.3f} s:"
        f" {share:.2f} chunks (goal 1.5)"
    )


def _chunks(engine: LocalEngine) -> int:
    return int(str(engine.status().details["chunks_total"]))


run(main)
