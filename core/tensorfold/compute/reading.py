"""What is read of a step's rows: their logits on the host, or tokens drawn from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.output import Output
from tensorfold.contracts.arrays import A
from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import Decoder
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.errors import BackendError

__all__ = ["Reader"]

LOGITS_BLOCK = 64
"""Rows whose logits are computed in one call, whatever was asked for, so that memory stays bounded."""


class Reader(Generic[A]):
    """Computes logits on the `rows` operations alone, so that whoever reads a row reads the same bits."""

    def __init__(self, decoder: Decoder[A], session: Session[A], ops: Ops[A]) -> None:
        """`ops`: those of kind `rows`."""
        self._decoder = decoder
        self._session = session
        self._ops = ops

    def sample(self, output: Output[A], draws: Sequence[Draw]) -> list[Drawn]:
        """One token for each draw; `Draw.row` indexes the output's wanted rows."""
        if len(draws) == output.rows <= LOGITS_BLOCK and [draw.row for draw in draws] == [*range(output.rows)]:
            return self._session.sample(self._logits(output, range(output.rows)), draws)
        drawn: dict[int, Drawn] = {}
        order = sorted(range(len(draws)), key=lambda index: draws[index].row)
        for block in _blocks(sorted({draw.row for draw in draws})):
            place = {row: number for number, row in enumerate(block)}
            inside = [index for index in order if draws[index].row in place]
            logits = self._logits(output, block)
            answers = self._session.sample(logits, [draws[index].at(place[draws[index].row]) for index in inside])
            drawn.update(zip(inside, answers, strict=True))
        return [drawn[index] for index in range(len(draws))]

    def logits(self, output: Output[A], rows: Sequence[int]) -> NDArray[np.float32]:
        """`[len(rows), V]` of these wanted rows, on the host; the same bits that `sample` reads."""
        blocks = [self._session.numpy(self._logits(output, block)) for block in _blocks(rows)]
        return np.concatenate(blocks)

    def _logits(self, output: Output[A], rows: Sequence[int]) -> A:
        if output.picked is None:
            raise BackendError("no row's logits were asked for in this step")
        whole = len(rows) == output.rows and list(rows) == list(range(output.rows))
        picked = output.picked
        if not whole:
            picked = self._ops.rows(picked, self._session.array(np.asarray(rows, dtype=np.int32)))
        decoder = self._decoder if output.group == "main" else self._decoder.draft
        if decoder is None:
            raise BackendError("this model has no draft head")
        return decoder.logits(self._ops, picked)


def _blocks(rows: Sequence[int]) -> list[Sequence[int]]:
    return [rows[first : first + LOGITS_BLOCK] for first in range(0, len(rows), LOGITS_BLOCK)]
