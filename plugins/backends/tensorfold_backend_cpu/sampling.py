"""Draws by the shared rule, spared what cannot matter: double precision where there is no noise, and of a row without
filters all but the few tokens that may win."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.sampling import draw_rows, gumbel_noise
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold_backend_cpu.kernels.gumbel import GOLDEN, MOST, Contend
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.rows import Rows

__all__ = ["sample"]

_WORD: Final = (1 << 64) - 1
_COLDEST: Final = 1e-2
"""Below this temperature, logits over it are too large for bounds in single precision."""


def sample(machine: Machine, logits: Rows, draws: Sequence[Draw]) -> list[Drawn]:
    """One token for each draw; `logits` is `[N, V]`, in floats without gaps."""
    rows = logits.values()
    found: dict[int, Drawn] = {}
    hot: list[int] = []
    for number, draw in enumerate(draws):
        if not _is_plain(draw):
            continue
        if draw.rule.temperature >= _COLDEST:
            hot.append(number)
        elif draw.rule.temperature == 0 and (largest := _largest(rows[draw.row])) is not None:
            found[number] = largest
    if hot:
        contenders = _contenders(machine, logits, [draws[number] for number in hot])
        for number, ids in zip(hot, contenders, strict=True):
            if len(ids):
                found[number] = _winner(rows[draws[number].row], ids, draws[number])
    rest = [number for number in range(len(draws)) if number not in found]
    found.update(zip(rest, draw_rows(rows, [draws[number] for number in rest]), strict=True))
    return [found[number] for number in range(len(draws))]


def _is_plain(draw: Draw) -> bool:
    """Whether nothing but temperature and noise decides, and nothing else is asked."""
    rule = draw.rule
    return (
        (rule.temperature == 0 or (rule.top_k <= 0 and rule.top_p >= 1 and rule.min_p <= 0))
        and draw.allowed is None
        and draw.forced is None
        and draw.logprobs is None
        and not rule.logit_bias
        and not (rule.penalizes and draw.counts)
    )


def _largest(row: NDArray[np.float32]) -> Drawn | None:
    """The largest logit, ties to the lower id; None for what the rule may call a problem."""
    token = int(np.argmax(row))  # the first NaN, if there is one
    return Drawn(token) if np.isfinite(row[token]) else None


def _winner(row: NDArray[np.float32], ids: NDArray[np.int64], draw: Draw) -> Drawn:
    """As the shared rule chooses, among these alone."""
    values = row[ids].astype(np.float64) / draw.rule.temperature + gumbel_noise(draw.key, draw.position, ids)
    return Drawn(int(ids[np.argmax(values)]))


def _contenders(machine: Machine, logits: Rows, draws: Sequence[Draw]) -> list[NDArray[np.int64]]:
    """For each draw the tokens that may win, ascending; none when the whole row has to be looked at."""
    out = np.empty((len(draws), 1 + MOST), np.int32)
    lines = np.empty((len(draws), 4), np.int64)
    lines[:, 0] = [logits.address + logits.stride * draw.row for draw in draws]
    lines[:, 1] = np.asarray([1.0 / draw.rule.temperature for draw in draws]).view(np.int64)
    lines[:, 2] = np.asarray([_stream(draw.key, draw.position) for draw in draws], np.uint64).view(np.int64)
    lines[:, 3] = int(out.ctypes.data) + out.strides[0] * np.arange(len(draws))
    machine.call(
        Contend(items=len(draws), draws=int(lines.ctypes.data), count=logits.shape[1]), logits.owner, lines, out
    )
    machine.run()
    return [line[1 : 1 + max(0, int(line[0]))].astype(np.int64) for line in out]


def _stream(key: int, position: int) -> int:
    """Where the noise of a position begins; as in the shared rule, which decides by its own."""
    return _mixed(_mixed(key + GOLDEN) + (position + 1) * GOLDEN)


def _mixed(word: int) -> int:
    word &= _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)
