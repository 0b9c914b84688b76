"""Eight streams over one (goal: 2.2 times the tokens a second), and a short prompt beside a long one (1.5 chunks)."""

from __future__ import annotations

import asyncio
import time

from exact_setup import arguments, load, middle, request, run, timed, without_cache

WORDS = "the sea a hill red stone old river and then we went home by the long road under "


async def main() -> None:
    wanted = arguments(__doc__ or "", repeats=3, reply=24, streams=8, long=4000)
    model = load(wanted.backend)
    prompts = [model.ids(f"Story {number}: {WORDS}") for number in range(wanted.streams)]
    one: list[float] = []
    all_together: list[float] = []
    async with model.engine(without_cache(), drafts=False) as engine:
        for repeat in range(wanted.repeats + 1):
            alone = await timed(engine, request(prompts[0], wanted.reply))
            began = time.perf_counter()
            together = await asyncio.gather(*(timed(engine, request(ids, wanted.reply)) for ids in prompts))
            seconds = time.perf_counter() - began
            assert together[0].answer.token_sha == alone.answer.token_sha
            if repeat:
                one.append(wanted.reply / alone.whole)
                all_together.append(wanted.reply * wanted.streams / seconds)
        ratio = middle(all_together) / middle(one)
        print(
            f"one stream {middle(one):.1f}, {wanted.streams} streams {middle(all_together):.1f} tokens/s: {ratio:.2f}"
        )
        await _beside(model, engine, wanted.long, wanted.repeats)


async def _beside(model: object, engine: object, length: int, repeats: int) -> None:
    """A prompt of 20 tokens that comes while a long one is computed."""
    text = model.ids(WORDS * 400)  # type: ignore[attr-defined]
    chunk_times: list[float] = []
    firsts: list[float] = []
    for repeat in range(repeats):
        before = engine.status().details["chunks_total"]  # type: ignore[attr-defined]
        long = asyncio.ensure_future(timed(engine, request((repeat, *text)[:length], 2)))  # type: ignore[arg-type]
        while engine.status().details["chunks_total"] == before:  # type: ignore[attr-defined]
            await asyncio.sleep(0.005)
        began, chunks = time.perf_counter(), engine.status().details["chunks_total"]  # type: ignore[attr-defined]
        await asyncio.sleep(0.02)
        short = await timed(engine, request((7, *text[:19]), 2))  # type: ignore[arg-type]
        firsts.append(short.first)
        await long
        ran = engine.status().details["chunks_total"] - chunks  # type: ignore[attr-defined]
        chunk_times.append((time.perf_counter() - began) / ran)
    share = middle(firsts) / middle(chunk_times)
    print(
        f"short prompt beside {length} tokens: first token {middle(firsts):.2f} s, a chunk {middle(chunk_times):.2f} s:"
        f" {share:.2f} chunks"
    )


run(main)
