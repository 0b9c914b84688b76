"""The operations that keep no state: shape, projections, norms, elementwise, reductions, positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed_plans import memo
from tensorfold.compute.packing import DenseEmbedding, DenseLinear
from tensorfold.compute.primitives import Element, Primitives
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, Embedding, Linear, Rope
from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError

__all__ = ["TILE", "PureOps", "handle", "rope_tables"]

TILE = 8
"""Rows of a `linear` that are computed together. Every tile has this shape, the last one filled up with zeros, so that
a library's choice of kernel never depends on the number of rows."""

_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def handle(packed: object, kind: type[Any]) -> Any:
    """A packed weight as the class that this backend makes of it.

    Raises:
        BackendError: another backend packed it.
    """
    if not isinstance(packed, kind):
        raise BackendError(f"a weight was packed as {type(packed).__name__}, and this backend packs {kind.__name__}")
    return packed


def rope_tables(step: Step[Any], rope: Rope, shift: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosines and sines of a Step's rows, `[R, pairs]` each, times the rope's scale.

    Angles are float32 products, as in the models' own code; long positions would differ otherwise.
    """
    frequencies = np.asarray(rope.inv_freq, dtype=np.float32)
    positions = (step.host_positions + shift).astype(np.float32)
    if positions.ndim == 1:
        angles = positions[:, None] * frequencies
    elif rope.sections is None:
        angles = positions[0][:, None] * frequencies
    else:
        axis = np.repeat(np.arange(len(rope.sections)), rope.sections)
        angles = positions[axis].T * frequencies
    scale = np.float32(rope.scale)
    return np.cos(angles) * scale, np.sin(angles) * scale


class PureOps(Generic[A]):
    """Written once over primitives; an override keeps the rules of `contracts.ops`."""

    def __init__(self, primitives: Primitives[A]) -> None:
        self.p = primitives

    # ---- shape -----------------------------------------------------------------------------------------------

    def reshape(self, x: A, *shape: int) -> A:
        return self.p.reshape(x, shape)

    def split(self, x: A, sizes: Sequence[int]) -> tuple[A, ...]:
        parts: list[A] = []
        start = 0
        for size in sizes:
            part: A = x[..., start : start + size]
            parts.append(part)
            start += size
        return tuple(parts)

    def concat(self, xs: Sequence[A], axis: int = -1) -> A:
        return self.p.concat(xs, axis)

    def rows(self, x: A, index: A) -> A:
        return self.p.take(x, index)

    # ---- projections -----------------------------------------------------------------------------------------

    def embed(self, ids: A, weight: Embedding) -> A:
        packed: DenseEmbedding[A] = handle(weight, DenseEmbedding)
        return self.p.take(packed.table, ids)

    def linear(self, x: A, weight: Linear, *, wide: bool = False) -> A:
        packed: DenseLinear[A] = handle(weight, DenseLinear)
        element: Element = "real" if wide else "act"
        rows = x.shape[0]
        tiles = self.p.reshape(self._filled(self.p.cast(x, element), -rows % TILE), (-1, TILE, packed.columns))
        product = self.p.matmul(tiles, self.p.cast(packed.weight, element), transposed=True)
        y: A = self.p.reshape(product, (-1, product.shape[-1]))[:rows]
        return y if packed.bias is None else y + self.p.cast(packed.bias, element)

    def _filled(self, x: A, rows: int) -> A:
        """x with so many rows of zeros after it."""
        if rows == 0:
            return x
        return self.p.concat([x, self.p.like(self.p.zeros((rows, *x.shape[1:]), "act"), x)], 0)

    # ---- norms -----------------------------------------------------------------------------------------------

    def rms_norm(self, x: A, weight: A | None, eps: float) -> A:
        return self.p.cast(self._rms(self.p.cast(x, "real"), weight, eps), "act")

    def _rms(self, x: A, weight: A | None, eps: float) -> A:
        squares: A = x * x
        normed = self.p.divide(x, self.p.sqrt(self._mean(squares) + eps))
        return normed if weight is None else normed * weight

    def _mean(self, x: A) -> A:
        """Over the last axis, which stays with size 1."""
        mean: A = self.p.sum(x, -1)[..., None] * (1.0 / x.shape[-1])
        return mean

    def layer_norm(self, x: A, weight: A, bias: A | None, eps: float) -> A:
        wide = self.p.cast(x, "real")
        centred: A = wide + self._mean(wide) * -1.0
        y: A = self.p.divide(centred, self.p.sqrt(self._mean(centred * centred) + eps)) * weight
        return self.p.cast(y if bias is None else y + bias, "act")

    def gated_rms_norm(self, x: A, gate: A, weight: A, eps: float, *, gate_first: bool, act: Activation) -> A:
        wide = self.p.cast(x, "real")
        opened = self._activated(self.p.cast(gate, "real"), act)
        y: A = self._rms(wide * opened, weight, eps) if gate_first else self._rms(wide, weight, eps) * opened
        return self.p.cast(y, "act")

    # ---- elementwise: in real, returned in x's type ----------------------------------------------------------

    def activate(self, x: A, act: Activation) -> A:
        return self.p.like(self._activated(self.p.cast(x, "real"), act), x)

    def _activated(self, x: A, act: Activation) -> A:
        match act:
            case "silu":
                return self.p.divide(x, self.p.exp(x * -1.0) + 1.0)
            case "gelu":
                inner: A = (x + x * x * x * 0.044715) * _SQRT_2_OVER_PI
                curved: A = (self.p.tanh(inner) + 1.0) * 0.5 * x
                return curved
            case "relu2":
                positive = self.p.maximum(x, 0.0)
                squared: A = positive * positive
                return squared
            case "sigmoid":
                return self.p.divide(1.0, self.p.exp(x * -1.0) + 1.0)

    def sigmoid(self, x: A) -> A:
        return self.activate(x, "sigmoid")

    def softplus(self, x: A) -> A:
        wide = self.p.cast(x, "real")
        y: A = self.p.maximum(wide, 0.0) + self.p.log1p(self.p.exp(self.p.abs(wide) * -1.0))
        return self.p.like(y, x)

    def tanh(self, x: A) -> A:
        return self.p.like(self.p.tanh(self.p.cast(x, "real")), x)

    def exp(self, x: A) -> A:
        return self.p.like(self.p.exp(self.p.cast(x, "real")), x)

    def sqrt(self, x: A) -> A:
        return self.p.like(self.p.sqrt(self.p.cast(x, "real")), x)

    def abs(self, x: A) -> A:
        return self.p.abs(x)

    def sign(self, x: A) -> A:
        return self.p.sign(x)

    def maximum(self, x: A, bound: float) -> A:
        return self.p.maximum(x, bound)

    def softcap(self, x: A, cap: float) -> A:
        return self.p.like(self._softcapped(self.p.cast(x, "real"), cap), x)

    def _softcapped(self, x: A, cap: float) -> A:
        capped: A = self.p.tanh(self.p.divide(x, cap)) * cap
        return capped

    def glu(self, gate_up: A, act: Activation, limit: float | None = None) -> A:
        width = gate_up.shape[-1] // 2
        wide = self.p.cast(gate_up, "real")
        gate: A = wide[..., :width]
        up: A = wide[..., width:]
        if limit is not None:
            gate = self.p.minimum(gate, limit)
            up = self.p.maximum(self.p.minimum(up, limit), -limit)
        return self.p.cast(self._activated(gate, act) * up, "act")

    # ---- reductions ------------------------------------------------------------------------------------------

    def softmax(self, x: A, axis: int = -1) -> A:
        wide = self.p.cast(x, "real")
        grown = self.p.exp(wide + self.p.largest(wide, axis) * -1.0)
        total = self.p.sum(grown, axis)
        kept = list(x.shape)
        kept[axis] = 1
        return self.p.divide(grown, self.p.reshape(total, kept))

    def sum(self, x: A, axis: int) -> A:
        return self.p.like(self.p.sum(self.p.cast(x, "real"), axis), x)

    def mix(self, weights: A, x: A) -> A:
        w, wide = self.p.cast(weights, "real"), self.p.cast(x, "real")
        terms: A = w[..., None] * (wide if len(w.shape) == 2 else wide[:, :, None, :])
        return self.p.like(self.p.sum(terms, 1), x)

    def sinkhorn(self, x: A, iterations: int, eps: float) -> A:
        def divided(c: A, axis: int) -> A:
            shape = list(c.shape)
            shape[axis] = 1
            return self.p.divide(c, self.p.reshape(self.p.sum(c, axis), shape) + eps)

        c = divided(self.p.cast(x, "real"), -2)
        for _ in range(iterations - 1):
            c = divided(divided(c, -1), -2)
        return self.p.like(c, x)

    # ---- position --------------------------------------------------------------------------------------------

    def rope(self, step: Step[A], x: A, rope: Rope, *, shift: int = 0) -> A:
        cosine, sine = memo(step, ("rope", rope, shift), lambda: self._tables(step, rope, shift))
        rotated = 2 * len(rope.inv_freq)
        wide = self.p.cast(x, "real")
        if rope.interleaved:
            left, right = wide[..., 0:rotated:2], wide[..., 1:rotated:2]
        else:
            left, right = wide[..., : rotated // 2], wide[..., rotated // 2 : rotated]
        first: A = left * cosine + right * sine * -1.0
        second: A = right * cosine + left * sine
        if rope.interleaved:
            pairs = self.p.concat([first[..., None], second[..., None]], -1)
            parts = [self.p.reshape(pairs, (*x.shape[:-1], rotated))]
        else:
            parts = [first, second]
        if rotated < x.shape[-1]:
            rest: A = wide[..., rotated:]
            parts.append(rest)
        return self.p.cast(self.p.concat(parts, -1), "act")

    def _tables(self, step: Step[A], rope: Rope, shift: int) -> tuple[A, A]:
        """`[R, 1, pairs]` each, for all heads."""
        cosine, sine = rope_tables(step, rope, shift)
        return self.p.array(cosine[:, None, :]), self.p.array(sine[:, None, :])
