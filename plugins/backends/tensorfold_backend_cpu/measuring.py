"""`tensorfold bench kernels`: each kernel beside what this machine can do at most, measured in the same run."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from tensorfold.contracts.states import KV, TableKey
from tensorfold.contracts.step import Segment, Step
from tensorfold.contracts.tensors import Affine
from tensorfold_backend_cpu.kernels.calls import Call
from tensorfold_backend_cpu.kernels.limits import (
    TURN_DOTS,
    TURN_FMAS,
    MultiplyFloats,
    MultiplyIntegers,
    Read,
)
from tensorfold_backend_cpu.memory import Memory
from tensorfold_backend_cpu.ops import CpuOps
from tensorfold_backend_cpu.rows import Rows
from tensorfold_backend_cpu.session import CpuSession

__all__ = ["Measured", "measure", "table"]

_LARGE: Final = 256 << 20
"""Bytes read for the memory's limit: more than caches hold."""
_BLOCKS: Final = 256
_SAMPLES: Final = 15


@dataclass(frozen=True, slots=True)
class Measured:
    """One kernel at one shape."""

    name: str
    microseconds: float
    gigabytes: float
    """Read from memory, a second."""
    operations: float
    """Billions a second; a multiplication and its addition are two."""
    share: float
    """Of the nearer limit."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """Of this machine, for a second."""

    bytes: float
    floats: float
    integers: float


def measure(session: CpuSession) -> list[Measured]:
    """The limits, then the kernels, at the shapes of a model of a hidden width of 2,048."""
    limits = _limits(session)
    found = [
        Measured("limit: reading memory", 0.0, limits.bytes / 1e9, 0.0, 1.0),
        Measured("limit: products of floats", 0.0, 0.0, limits.floats / 1e9, 1.0),
        Measured("limit: products of integers", 0.0, 0.0, limits.integers / 1e9, 1.0),
    ]
    found.extend(_products(session, limits))
    found.extend(_attention(session, limits))
    return found


def _limits(session: CpuSession) -> _Limits:
    """What no kernel can exceed."""
    threads = session.machine.team.threads
    memory, out = Memory(_LARGE), Memory(64 * _BLOCKS)
    memory.bytes[::4096] = 1

    def seconds(call: Call) -> float:
        def work() -> None:
            session.machine.call(call)
            session.finish()

        return _fastest(work)

    read = Read(items=_BLOCKS, block=_LARGE // _BLOCKS, memory=memory.address, out=out.address)
    floats, integers = MultiplyFloats(items=threads, turns=20_000), MultiplyIntegers(items=threads, turns=5_000)
    return _Limits(
        bytes=_LARGE / seconds(read),
        floats=2 * TURN_FMAS * floats.turns * threads / seconds(floats),
        integers=2 * TURN_DOTS * integers.turns * threads / seconds(integers),
    )


def _fastest(work: Callable[[], object]) -> float:
    """Seconds of the best of some runs; the first one does not count."""
    work()
    best = float("inf")
    for _ in range(_SAMPLES):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


def _measured(name: str, seconds: float, read: float, operations: float, limits: _Limits, most: float) -> Measured:
    share = max(read / limits.bytes, operations / most) / seconds
    return Measured(name, seconds * 1e6, read / seconds / 1e9, operations / seconds / 1e9, share)


def _products(session: CpuSession, limits: _Limits) -> Iterator[Measured]:
    """Matrices of 2,048 columns, so many that caches do not hold them."""
    rng = np.random.default_rng(0)
    columns, outputs, copies = 2048, 4096, 12
    shape = (outputs, columns // 32)
    scales = rng.uniform(0.001, 0.01, shape).astype(np.float16).astype(np.float32)
    kinds = {
        "4 bits, biased": Affine(4, 32, rng.integers(0, 256, (outputs, columns // 2), np.uint8), scales, -scales * 7.5),
        "4 bits, centred": Affine(
            4, 32, rng.integers(0, 256, (outputs, columns // 2), np.uint8), scales, -scales * 8.0
        ),
        "8 bits, centred": Affine(8, 32, rng.integers(0, 256, (outputs, columns), np.uint8), scales, -scales * 128.0),
    }
    ops = _ops(session, {})
    for name, tensor in kinds.items():
        packed = [session.packer.linear([tensor], [None]) for _ in range(copies)]
        size = copies * (tensor.codes.nbytes + (4 if "biased" in name else 2) * scales.size)
        for rows in (1, 8, 256):
            x = session.array(rng.standard_normal((rows, columns)).astype(np.float32))

            def work(x: Rows = x, packed: Sequence[Any] = packed) -> None:
                for each in packed:
                    ops.linear(x, each)
                session.finish()

            operations = 2.0 * copies * rows * columns * outputs
            yield _measured(f"product, {name}, {rows} rows", _fastest(work), size, operations, limits, limits.integers)


def _attention(session: CpuSession, limits: _Limits) -> Iterator[Measured]:
    """32 query heads over 8 key heads of a width of 64, at 2,048 positions."""
    heads, kv_heads, width, length = 32, 8, 64, 2048
    key = TableKey("main", None)
    ops = _ops(session, {"kv": KV(kv_heads, width, width)}, pages=length // 64 + 8)
    rng = np.random.default_rng(1)
    for rows in (1, 8, 256):
        step = _step(session, key, rows, length - rows)
        q, k, v = (
            session.array(rng.standard_normal((rows, each, width)).astype(np.float32))
            for each in (heads, kv_heads, kv_heads)
        )

        def work(step: Step[Rows] = step, q: Rows = q, k: Rows = k, v: Rows = v) -> None:
            ops.attend(step, "kv", q, k, v, scale=0.125)
            session.finish()

        read = 2 * 2 * kv_heads * width * length * max(1, rows // 8)
        operations = 2.0 * 2 * rows * heads * width * (length - rows / 2)
        yield _measured(f"attention, {rows} rows", _fastest(work), read, operations, limits, limits.floats)


def _ops(session: CpuSession, states: dict[str, KV], pages: int = 1) -> CpuOps:
    store = session.store(states, {TableKey("main", None): pages}, 1)
    ops = session.ops("rows", store, states)
    assert isinstance(ops, CpuOps)
    return ops


def _step(session: CpuSession, key: TableKey, rows: int, start: int) -> Step[Rows]:
    """So many rows of one sequence, which holds `start` positions."""
    ids = np.zeros(rows, np.int32)
    positions = np.arange(start, start + rows, dtype=np.int32)
    return Step(
        kind="rows",
        segments=(Segment(0, (0,) * rows, start),),
        bounds=((0, rows),),
        ids=session.array(ids),
        positions=session.array(positions),
        host_ids=ids,
        host_positions=positions,
        history=lambda n: np.full((rows, n), -1, np.int64),
        pages={key: (tuple(range((start + rows - 1) // 64 + 1)),)},
        wanted=None,
    )


def table(found: Sequence[Measured], *, as_json: bool) -> str:
    """For people, or for programs."""
    if as_json:
        return json.dumps([asdict(each) for each in found], indent=2)
    lines = [f"{'':42}{'us':>10}{'GB/s':>8}{'GOP/s':>8}{'of limit':>10}"]
    lines.extend(
        f"{each.name:42}{_cell(each.microseconds, 1):>10}{_cell(each.gigabytes, 1):>8}{_cell(each.operations, 0):>8}"
        f"{each.share:10.0%}"
        for each in found
    )
    return "\n".join(lines)


def _cell(value: float, digits: int) -> str:
    """A figure; nothing where there is none."""
    return f"{value:.{digits}f}" if value else ""
