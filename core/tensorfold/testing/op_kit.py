"""Weights and inputs for trials of operations: the same numbers for every backend, exact in bfloat16.

Eight significant bits hold every value, so that a backend of narrow activations starts from the same numbers as the
reference. `spread` has values of many sizes, whose float32 sums depend on their order; `grid` has few and coarse ones,
whose sums are exact and often equal, for choices that have to come out alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.arrays import A
from tensorfold.contracts.backend import Session
from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp, Linear
from tensorfold.contracts.tensors import Affine, Dense, Tensor

__all__ = ["Kit", "Stored", "grid", "spread"]

H = TypeVar("H")

Floats: TypeAlias = NDArray[np.float32]
Stored: TypeAlias = Literal["f32", "f16", "bf16", "affine4", "affine8"]
"""How a matrix lies in the imagined checkpoint."""

_GROUP = 16
"""Columns that share a scale in quantized matrices: the smallest that there is."""


def grid(rng: np.random.Generator, shape: Sequence[int], step: float, reach: int) -> Floats:
    """Multiples of `step`, from `-reach` to `reach` of them."""
    return (rng.integers(-reach, reach + 1, tuple(shape)) * step).astype(np.float32)


def spread(rng: np.random.Generator, shape: Sequence[int], scale: float = 1.0) -> Floats:
    """Normally distributed values, cut to bfloat16."""
    exact = rng.normal(0, scale, tuple(shape)).astype(np.float32)
    return (exact.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _tensor(rng: np.random.Generator, shape: tuple[int, int], stored: Stored) -> Tensor:
    match stored:
        case "f32":
            return Dense(spread(rng, shape, 0.25), "f32")
        case "f16":
            return Dense(spread(rng, shape, 0.25).astype(np.float16), "f16")
        case "bf16":
            return Dense((spread(rng, shape, 0.25).view(np.uint32) >> 16).astype(np.uint16), "bf16")
        case "affine4" | "affine8":
            bits = 4 if stored == "affine4" else 7
            rows, columns = shape
            groups = (rows, columns // _GROUP)
            codes = rng.integers(0, 1 << bits, shape, dtype=np.uint8)
            packed = (codes[:, 0::2] | (codes[:, 1::2] << 4)).astype(np.uint8) if bits == 4 else codes
            return Affine(
                bits=bits,
                group=_GROUP,
                codes=packed,
                scales=(rng.uniform(0.5, 1.5, groups) / (1 << bits)).astype(np.float32),
                biases=rng.uniform(-0.75, -0.25, groups).astype(np.float32),
            )


class Kit(Generic[A]):
    """Packs weights for one session. A name stands for numbers: it gives the same ones to every backend."""

    def __init__(self, session: Session[A]) -> None:
        self.session = session
        self._made: dict[str, object] = {}

    def _once(self, name: str, make: Callable[[np.random.Generator], H]) -> H:
        if name not in self._made:
            self._made[name] = make(np.random.default_rng(zlib.crc32(name.encode())))
        made: H = self._made[name]  # type: ignore[assignment]
        return made

    def linear(
        self, name: str, sizes: Sequence[int], columns: int, *, stored: Sequence[Stored] = (), bias: bool = False
    ) -> Linear:
        """A fused group; `stored` says how each part lies (f32 when it says nothing); the last part has no bias."""

        def make(rng: np.random.Generator) -> Linear:
            plain: list[Stored] = ["f32"] * len(sizes)
            kinds = stored or plain
            parts = [_tensor(rng, (size, columns), kind) for size, kind in zip(sizes, kinds, strict=True)]
            biases = [
                Dense(spread(rng, (size,)), "f32") if bias and number + 1 < max(2, len(sizes)) else None
                for number, size in enumerate(sizes)
            ]
            return self.session.packer.linear(parts, biases)

        return self._once(f"linear {name} {sizes} {columns}", make)

    def embedding(self, name: str, parts: Sequence[int], hidden: int) -> Embedding:
        """A table in shards."""
        return self._once(
            f"embedding {name} {parts} {hidden}",
            lambda rng: self.session.packer.embedding([_tensor(rng, (part, hidden), "bf16") for part in parts]),
        )

    def vector(self, name: str, shape: Sequence[int], *, low: float = 0.0) -> A:
        """A constant; `low` moves it up."""
        return self._once(
            f"vector {name} {shape} {low}",
            lambda rng: self.session.packer.vector(spread(rng, shape) + np.float32(low)),
        )

    def conv(self, name: str, channels: int, taps: int, *, bias: bool) -> ConvWeight:
        """A depthwise kernel."""
        return self._once(
            f"conv {name} {channels} {taps} {bias}",
            lambda rng: self.session.packer.conv(
                spread(rng, (channels, taps)), spread(rng, (channels,)) if bias else None
            ),
        )

    def experts(
        self, name: str, count: int, hidden: int, inner: int, *, act: Activation, gated: bool, limit: float | None
    ) -> Experts:
        """A mixture's matrices."""

        def make(rng: np.random.Generator) -> Experts:
            up = [[_tensor(rng, (inner, hidden), "f32") for _ in range(2 if gated else 1)] for _ in range(count)]
            down = [_tensor(rng, (hidden, inner), "f32") for _ in range(count)]
            return self.session.packer.experts(up, down, act=act, gated=gated, limit=limit)

        return self._once(f"experts {name} {count} {hidden} {inner}", make)

    def latent_up(self, name: str, heads: int, nope: int, v: int, latent: int) -> LatentUp:
        """MLA's up-projection."""
        return self._once(
            f"latent_up {name} {heads} {nope} {v} {latent}",
            lambda rng: self.session.packer.latent_up(
                _tensor(rng, (heads * (nope + v), latent), "f32"), heads, nope, v
            ),
        )
