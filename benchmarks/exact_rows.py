"""What row independence costs: rounds of rows on the row kernels, over the same rows on the chunk kernels."""

from __future__ import annotations

from typing import Any

from exact_setup import Model, arguments, load, middle

from tensorfold.compute.runner import Runner
from tensorfold.contracts.step import Segment


class FreeRows:
    """The session, whose row operations are those of chunks: fast, and rows see each other."""

    def __init__(self, session: Any) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def ops(self, kind: str, store: Any, states: Any) -> Any:
        """Chunk kernels, whatever is asked for."""
        return self._session.ops("chunk", store, states)


def main() -> None:
    wanted = arguments(__doc__ or "", repeats=12)
    model = load(wanted)
    plain = model.runner(lanes=1, window=1024)
    free: Runner[Any] = Runner(
        model.decoder,
        FreeRows(model.session),
        plain.geometry,
        lanes=1,
        pages=dict.fromkeys(plain.pages(), 16),
        identity="free",
    )
    tokens = tuple(range(100, 400))
    slots = {runner: _prefilled(runner, tokens) for runner in (plain, free)}
    print("rows   independent   not   ratio   (one sequence: the chunk kernels take a window as a chunk)")
    for rows in (1, 2, 4, 8, 16, 33):
        times: dict[Any, list[float]] = {plain: [], free: []}
        for _ in range(wanted.repeats):
            for runner in (plain, free):
                times[runner].append(_step(model, runner, slots[runner], tokens, rows))
        on, off = middle(times[plain][2:]), middle(times[free][2:])
        print(f"{rows:4}   {on * 1000:8.1f} ms {off * 1000:8.1f} ms {on / off:6.2f}")


def _prefilled(runner: Runner[Any], tokens: tuple[int, ...]) -> int:
    slot = runner.acquire()
    assert slot is not None
    runner.forward([Segment(slot, tokens, 0, want="none", kind="chunk")])
    runner.commit(slot, len(tokens))
    return slot


def _step(model: Model, runner: Runner[Any], slot: int, tokens: tuple[int, ...], rows: int) -> float:
    began = model.clock()
    output = runner.forward([Segment(slot, tokens[:rows], len(tokens), want="all", kind="rows")])
    runner.logits(output, range(rows))
    seconds = model.clock() - began
    runner.commit(slot, len(tokens))
    return seconds


main()
