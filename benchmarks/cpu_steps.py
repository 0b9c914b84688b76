"""Steps of the cpu backend without a server: one row, 8 rows of one sequence, and one row of each of 8 sequences.

python benchmarks/cpu_steps.py MODEL [--threads 2] [--length 512] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.step import Segment
from tensorfold.observe import configure_logs
from tensorfold.plugins import Plugins, Wanted
from tensorfold_backend_cpu import CpuBackend

STREAMS = 8


class Steps:
    """Eight sequences of one length."""

    def __init__(self, path: Path, threads: int, length: int) -> None:
        families = [each.value for each in Plugins(Wanted()).families()]
        opened = open_checkpoint(path, families)
        self.session = CpuBackend().open(BackendSettings(threads=threads))
        geometry = opened.family.geometry(opened.checkpoint.config)
        decoder: Any = load_decoder(opened.family, opened.checkpoint.config, opened.checkpoint, self.session.packer)
        plan = plan_memory(geometry, self.session, lanes=STREAMS, context=length + 64, budget=4 << 30)
        self._runner: Runner[Any] = Runner(
            decoder, self.session, geometry, lanes=STREAMS, pages=plan.pages, identity="steps"
        )
        self._length = length
        self._slots = [slot for _ in range(STREAMS) if (slot := self._runner.acquire()) is not None]
        for slot in self._slots:
            for start in range(0, length, self._runner.chunk):
                part = _tokens(min(self._runner.chunk, length - start))
                self._runner.forward([Segment(slot, part, start, want="none", kind="chunk")])
                self._runner.commit(slot, start + len(part))

    def one_row(self) -> float:
        """Seconds of one row of one sequence."""
        return self._step([self._segment(0, 1)])

    def verify_8(self) -> float:
        """Seconds of 8 rows of one sequence, as when drafts are verified."""
        return self._step([self._segment(0, 8)])

    def streams_8(self) -> float:
        """Seconds of one row of each sequence."""
        return self._step([self._segment(number, 1) for number in range(STREAMS)])

    def _segment(self, number: int, rows: int) -> Segment:
        return Segment(self._slots[number], _tokens(rows), self._length, want="all")

    def _step(self, segments: Sequence[Segment]) -> float:
        begun = time.perf_counter()
        output = self._runner.forward(segments)
        self._runner.logits(output, range(output.rows))
        taken = time.perf_counter() - begun
        for each in segments:
            self._runner.commit(each.slot, self._length)
        return taken


def _tokens(count: int) -> tuple[int, ...]:
    return tuple(random.randrange(100, 40_000) for _ in range(count))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="a folder or a GGUF file of any family")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--length", type=int, default=512, help="positions before the step")
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--json", action="store_true", help="seconds as JSON")
    given = parser.parse_args()
    configure_logs()
    steps = Steps(given.model, given.threads, given.length)
    kinds = {"one_row": steps.one_row, "verify_8": steps.verify_8, "streams_8": steps.streams_8}
    samples: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(given.samples):
        for name, step in kinds.items():
            samples[name].append(step())
    steps.session.close()
    medians = {name: statistics.median(taken) for name, taken in samples.items()}
    if given.json:
        print(json.dumps(medians))
    else:
        for name, seconds in medians.items():
            print(f"{name:10} {seconds * 1e3:7.2f} ms")


if __name__ == "__main__":
    main()
