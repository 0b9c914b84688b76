"""A system message of 1,024 tokens is computed once: time to the first token, resent over fresh (goal: 0.15)."""

from __future__ import annotations

from exact_setup import arguments, load, middle, request, run, timed

SENTENCE = "You answer in few words, you never guess, and you say so when you do not know. "


async def main() -> None:
    wanted = arguments(__doc__ or "", repeats=5, tokens=1024)
    model = load(wanted)
    opening = model.ids("<|im_start|>")
    fresh: list[float] = []
    resent: list[float] = []
    async with model.engine() as engine:
        for number in range(wanted.repeats):
            system = (*opening, *model.ids(f"system\n{number} " + SENTENCE * 200))[: wanted.tokens]
            for question, times in (("What is red?", fresh), ("What is blue?", resent)):
                ids = (*system, *opening, *model.ids(f"user\n{question}<|im_end|>\n<|im_start|>assistant\n"))
                found = await timed(model, engine, request(ids, 4))
                times.append(found.first)
                print(f"  {question} {found.answer.usage.cached_tokens:5} cached  {found.first:.3f} s")
    print(
        f"fresh {middle(fresh):.3f} s, resent {middle(resent):.3f} s: {middle(resent) / middle(fresh):.3f} (goal 0.15)"
    )


run(main)
