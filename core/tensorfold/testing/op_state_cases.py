"""Every operation that keeps a state, and what can go wrong with it: pages out of order, windows, pools, sharing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tensorfold.contracts.handles import Activation
from tensorfold.contracts.ops import Ops, Selection
from tensorfold.contracts.states import KV, Conv, IndexKeys, Latent, Recent, Recurrent, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.testing.op_cases import rows_of
from tensorfold.testing.op_kit import Kit, grid, spread
from tensorfold.testing.op_trial import OpCase, Rows

__all__ = ["STATE_CASES"]


def _attend(
    name: str,
    heads: int,
    spec: KV,
    *,
    prefix: int = 70,
    softcap: float | None = None,
    sinks: bool = False,
) -> OpCase:
    def run(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> tuple[Any, ...]:
        logits = kit.vector("sinks", (heads,)) if sinks else None
        return (ops.attend(step, "kv", xs[0], xs[1], xs[2], scale=0.5, softcap=softcap, sinks=logits),)

    return OpCase(
        f"attend {name}",
        rows_of((heads, spec.k_dim), (spec.heads, spec.k_dim), (spec.heads, spec.v_dim)),
        run,
        {"kv": spec},
        prefix,
    )


def _attention() -> list[OpCase]:
    def shared(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> tuple[Any, ...]:
        first = ops.attend(step, "kv", xs[0], xs[1], xs[2], scale=0.5)
        return (first, ops.attend(step, "kv", xs[3], None, None, scale=0.25))

    def two_tables(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> tuple[Any, ...]:
        whole = ops.attend(step, "whole", xs[0], xs[1], xs[2], scale=0.5)
        return (whole, ops.attend(step, "near", xs[3], xs[1], xs[2], scale=0.5))

    heads: Sequence[Sequence[int]] = ((6, 5), (2, 5), (2, 7), (6, 5))
    return [
        _attend("grouped heads", 6, KV(2, 5, 7)),
        _attend("one head", 1, KV(1, 3, 3)),
        _attend("every head its own keys", 3, KV(3, 8, 8)),
        _attend("usual widths", 8, KV(2, 64, 64)),
        _attend("many pages", 4, KV(2, 16, 16), prefix=330),
        _attend("a window within a page", 6, KV(2, 5, 7, window=9), prefix=80),
        _attend("a window over pages", 4, KV(2, 5, 5, window=70), prefix=200),
        _attend("softcap", 6, KV(2, 5, 7), softcap=2.0),
        _attend("sinks", 6, KV(2, 5, 7), sinks=True),
        _attend("sinks in a window", 6, KV(3, 5, 7, window=20), sinks=True, prefix=90),
        OpCase("attend what another layer wrote", rows_of(*heads), shared, {"kv": KV(2, 5, 7)}, 70),
        OpCase(
            "attend two tables",
            rows_of(*heads),
            two_tables,
            {"whole": KV(2, 5, 7), "near": KV(2, 5, 7, window=16)},
            90,
        ),
    ]


def _latent() -> list[OpCase]:
    heads, nope, value, latent = 3, 5, 7, 11

    def attend(rope: int) -> OpCase:
        def run(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> tuple[Any, ...]:
            up = kit.latent_up("up", heads, nope, value, latent)
            turned, key = (xs[2], xs[3]) if rope else (None, None)
            return (ops.attend_latent(step, "latent", xs[0], turned, xs[1], key, up, scale=0.5),)

        shapes: list[Sequence[int]] = [(heads, nope), (latent,)]
        if rope:
            shapes += [(heads, rope), (rope,)]
        name = "attend_latent" if rope else "attend_latent without rotary keys"
        return OpCase(name, rows_of(*shapes), run, {"latent": Latent(latent, rope)}, 70)

    return [attend(3), attend(0)]


def _indexed(
    name: str, pool: int, topk: int, states: dict[str, StateSpec], attend: Callable[..., Any], *, weighed: bool = True
) -> OpCase:
    """A choice of positions, shown by what attention makes of it."""
    index_heads, width = 3, 5

    def inputs(rng: np.random.Generator, rows: int) -> Rows:
        # Coarse values, so that equal scores are common and their order matters.
        queries, keys = grid(rng, (rows, index_heads, width), 1 / 2, 3), grid(rng, (rows, width), 1 / 2, 3)
        weights = grid(rng, (rows, index_heads), 1 / 4, 8)
        rest = (spread(rng, (rows, *shape)) for shape in ((6, 5), (2, 5), (2, 7), (11,)))
        return (queries, keys, weights, *rest)

    def run(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> tuple[Any, ...]:
        weights = xs[2] if weighed else None
        selection = ops.index_topk(step, "index", xs[0], xs[1], weights, topk=topk, scale=0.25)
        return (attend(ops, step, kit, xs[3:], selection),)

    return OpCase(f"index_topk {name}", inputs, run, {"index": IndexKeys(width, pool), **states}, 70)


def _index() -> list[OpCase]:
    def grouped(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...], selection: Selection) -> Any:
        return ops.attend(step, "kv", xs[0], xs[1], xs[2], scale=0.5, select=selection)

    def latent(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...], selection: Selection) -> Any:
        up = kit.latent_up("up", 6, 5, 7, 11)
        return ops.attend_latent(step, "latent", xs[0], None, xs[3], None, up, scale=0.5, select=selection)

    def windowed(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...], selection: Selection) -> Any:
        whole = ops.attend(step, "kv", xs[0], xs[1], xs[2], scale=0.5, select=selection)
        # The last position is always among a window's, whether it is chosen or not, so sinks keep the sum positive.
        near = ops.attend(step, "near", xs[0], xs[1], xs[2], scale=0.5, sinks=kit.vector("sinks", (6,)))
        return whole + near

    kv = KV(2, 5, 7)
    return [
        _indexed("of positions", 1, 8, {"kv": kv}, grouped),
        _indexed("without weights", 1, 8, {"kv": kv}, grouped, weighed=False),
        _indexed("of pools", 4, 3, {"kv": kv}, grouped),
        _indexed("of all that there is", 1, 400, {"kv": kv}, grouped),
        _indexed("for the latent", 4, 3, {"latent": Latent(11, 0)}, latent),
        _indexed("beside a window", 1, 8, {"kv": kv, "near": KV(2, 5, 7, window=30)}, windowed),
    ]


def _looking_back() -> list[OpCase]:
    def conv(name: str, spec: Conv, act: Activation | None, bias: bool) -> OpCase:
        return OpCase(
            f"short_conv {name}",
            rows_of((spec.channels,)),
            lambda ops, step, kit, xs: (
                ops.short_conv(step, "conv", xs[0], kit.conv(name, spec.channels, spec.taps, bias=bias), act=act),
            ),
            {"conv": spec},
            9,
        )

    def two_groups(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (ops.recent(step, "main", xs[0]), ops.recent(step, "draft", xs[0]))

    return [
        conv("silu", Conv(7, 4), "silu", False),
        conv("biased", Conv(5, 3), None, True),
        conv("dilated", Conv(6, 3, dilation=3), None, False),
        OpCase(
            "recent",
            rows_of((7,)),
            lambda ops, step, kit, xs: (ops.recent(step, "recent", xs[0]),),
            {"recent": Recent(7, 4)},
            9,
        ),
        OpCase(
            "recent of two groups",
            rows_of((3,)),
            two_groups,
            {
                "main": Recent(3, 3),
                "draft": Recent(3, 5, group="draft"),
            },
            9,
        ),
    ]


def _recurrences() -> list[OpCase]:
    def delta(name: str, key_heads: int, heads: int, width: int, value: int, *, by_channel: bool) -> OpCase:
        def inputs(rng: np.random.Generator, rows: int) -> Rows:
            decay = (heads, width) if by_channel else (heads,)
            return (
                spread(rng, (rows, key_heads, width)),
                spread(rng, (rows, key_heads, width)),
                spread(rng, (rows, heads, value)),
                -np.abs(spread(rng, (rows, *decay), 0.25)),
                np.abs(spread(rng, (rows, heads), 0.5)),
            )

        def run(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (ops.gated_delta(step, "delta", *xs, scale=0.5),)

        return OpCase(f"gated_delta {name}", inputs, run, {"delta": Recurrent((heads, width, value))}, 9)

    def ssd_inputs(rng: np.random.Generator, rows: int) -> Rows:
        shapes = ((rows, 4, 5), (rows, 4), (rows, 2, 7), (rows, 2, 7))
        x, dt, b, c = (spread(rng, shape) for shape in shapes)
        return (x, np.abs(dt), b, c)

    def ssd(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> tuple[Any, ...]:
        decay = kit.vector("a", (4,), low=-3.0)
        return (ops.ssd(step, "ssd", xs[0], xs[1], decay, xs[2], xs[3], kit.vector("d", (4,))),)

    return [
        delta("by head", 2, 4, 5, 7, by_channel=False),
        delta("by channel", 3, 3, 5, 3, by_channel=True),
        OpCase("ssd", ssd_inputs, ssd, {"ssd": Recurrent((4, 5, 7))}, 9),
    ]


STATE_CASES: tuple[OpCase, ...] = (
    *_attention(),
    *_latent(),
    *_index(),
    *_looking_back(),
    *_recurrences(),
)
"""Operations that keep a state."""
