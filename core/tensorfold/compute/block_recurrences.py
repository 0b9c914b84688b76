"""Recurrences over a whole chunk as products of matrices: blocks of rows at once, the state from block to block.

Gated delta rule: the WY form of Yang et al., "Gated Delta Networks" (2024) and, with a decay for each channel, "Kimi
Linear" (2025). State space duality: Dao and Gu, "Transformers are SSMs" (2024). Decays enter as exponents of differences
that are never positive, so that nothing overflows however strong they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Generic

from tensorfold.compute.primitives import Primitives
from tensorfold.contracts.arrays import A

__all__ = ["BlockPrimitives", "BlockRecurrences"]

_ROWS: Final = 64
"""Rows of a block."""
_ROWS_BY_CHANNEL: Final = 16
"""The same where every channel decays by itself: a block then takes rows^2 numbers for each channel."""


class BlockPrimitives(Primitives[A], ABC):
    """What blocks take of an array library besides. A chunk is alone in its step, so rows may decide each other's bits."""

    @abstractmethod
    def product(self, a: A, b: A) -> A:
        """`[..., m, k]` times `[..., k, n]`, by the library's own product."""

    @abstractmethod
    def permute(self, x: A, axes: Sequence[int]) -> A:
        """The axes in another order; a view where the library has views."""

    @abstractmethod
    def turn(self, x: A) -> A:
        """The last two axes change places."""

    @abstractmethod
    def cumsum(self, x: A, axis: int) -> A:
        """Sums of all elements up to each, itself included."""

    @abstractmethod
    def total(self, x: A) -> A:
        """The sum over the last axis, which goes, in any order."""

    @abstractmethod
    def tril(self, x: A, diagonal: int) -> A:
        """Zero above this diagonal of the last two axes: 0 is the main one, -1 the one below it."""

    @abstractmethod
    def solve(self, lower: A, wanted: A) -> A:
        """Y of `(1 + L) Y = wanted`, L strictly lower `[..., C, C]` and wanted `[..., C, n]`."""


class BlockRecurrences(Generic[A]):
    """Both recurrences over one library."""

    def __init__(self, primitives: BlockPrimitives[A]) -> None:
        self._p = primitives

    def delta_rule(self, state: A, inputs: Sequence[A]) -> tuple[A, A]:
        """The delta rule over all rows of one sequence.

        Args:
            state: `[hk, s, dk, dv]` before the first row.
            inputs: as `delta_scan` has them: queries, keys, values, logs of decays, strengths.

        Returns:
            Outputs `[R, hk, s, dv]`, and the state after the last row.
        """
        p, rows = self._p, inputs[0].shape[0]
        by_channel = inputs[3].shape[-1] > 1
        block = _block(rows, _ROWS_BY_CHANNEL if by_channel else _ROWS)
        queries, keys, values, fading, strength = (self._in_blocks(each, block) for each in inputs)
        faded = p.cumsum(fading, -2)
        key_products, query_products = self._decayed_products(queries, keys, faded, by_channel=by_channel)
        entering = p.exp(faded)
        # A row's change depends on those before it: (1 + L) changes = strength (values - what the state recalls).
        wanted = p.concat([strength * values, strength * keys * entering], -1)
        solved = p.solve(p.tril(key_products * strength, -1), wanted)
        width = values.shape[-1]
        changes, recalling = solved[..., :width], solved[..., width:] * -1.0
        reading, within = queries * entering, p.tril(query_products, 0)
        last = faded[..., -1:, :]
        writing = p.turn(keys * p.exp(last + faded * -1.0))
        surviving = p.turn(p.exp(last))
        outputs: list[A] = []
        for number in range(queries.shape[0]):
            change = changes[number] + p.product(recalling[number], state)
            outputs.append(p.product(reading[number], state) + p.product(within[number], change))
            state = surviving[number] * state + p.product(writing[number], change)
        return self._in_rows(outputs, rows), state

    def state_space(self, state: A, inputs: Sequence[A]) -> tuple[A, A]:
        """State space duality over all rows of one sequence.

        Args:
            state: `[g, s, p, n]` before the first row.
            inputs: as `ssd_scan` has them: logs of decays, what enters, where it is written, what is read.

        Returns:
            Outputs `[R, g, s, p]`, and the state after the last row.
        """
        p, rows = self._p, inputs[0].shape[0]
        block = _block(rows, _ROWS)
        fading, entering = (self._in_blocks(each[..., 0], block) for each in inputs[:2])
        written, read = (self._in_blocks(each[..., 0, :], block) for each in inputs[2:])
        faded = p.cumsum(fading, -2)
        within = p.tril(p.product(read, p.turn(written)) * self._differences(faded), 0)
        last = faded[..., -1:, :]
        lasting = p.product(p.turn(entering * p.exp(last + faded * -1.0)), written)
        passing, surviving = p.exp(faded), p.exp(last)
        own = p.product(within, entering)
        outputs: list[A] = []
        for number in range(read.shape[0]):
            outputs.append(own[number] + passing[number] * p.product(read[number], p.turn(state)))
            state = surviving[number] * state + lasting[number]
        return self._in_rows(outputs, rows), state

    def _in_blocks(self, x: A, block: int) -> A:
        """`[R, h, s, w]` to `[blocks, h, s, block, w]`; rows of zeros at the end change nothing and are not read."""
        missing = -x.shape[0] % block
        if missing:
            x = self._p.concat([x, self._p.like(self._p.zeros((missing, *x.shape[1:]), "real"), x)], 0)
        return self._p.permute(self._p.reshape(x, (-1, block, *x.shape[1:])), (0, 2, 3, 1, 4))

    def _in_rows(self, blocks: Sequence[A], rows: int) -> A:
        """Each `[h, s, block, w]`, all their rows one after the other without those that were added."""
        joined: A = self._p.concat([self._p.permute(each, (2, 0, 1, 3)) for each in blocks], 0)[:rows]
        return joined

    def _differences(self, faded: A) -> A:
        """`[..., C, 1]` to `[..., C, C]`: what is left in row i of what row j wrote; 0 for what comes later."""
        return self._p.tril(self._left(faded, self._p.turn(faded)), 0)

    def _left(self, later: A, earlier: A) -> A:
        """What is left between two places of what had faded so far at each."""
        between: A = later + earlier * -1.0
        return self._p.exp(self._p.minimum(between, 0.0))

    def _decayed_products(self, queries: A, keys: A, faded: A, *, by_channel: bool) -> tuple[A, A]:
        """Keys and queries of row i with keys of row j, `[..., C, C]`, by what is left of those."""
        p = self._p
        if not by_channel:
            left, turned = self._differences(faded), p.turn(keys)
            return p.product(keys, turned) * left, p.product(queries, turned) * left
        left = self._left(faded[..., :, None, :], faded[..., None, :, :]) * keys[..., None, :, :]
        return p.total(keys[..., :, None, :] * left), p.total(queries[..., :, None, :] * left)


def _block(rows: int, most: int) -> int:
    """A power of two, for a chunk of few rows no more than they need."""
    return min(most, 1 << (rows - 1).bit_length())
