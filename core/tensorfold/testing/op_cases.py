"""Every operation without a state, at shapes that are easy to get wrong: widths that are no multiple of 8, one head,
odd groups, mixed storage. `testing.op_state_cases` holds the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from tensorfold.contracts.handles import Activation, Rope, Router
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold.testing.op_kit import Kit, Stored, spread
from tensorfold.testing.op_trial import OpCase, Rows

__all__ = ["PURE_CASES", "rows_of"]

Operation: TypeAlias = Callable[[Ops[Any], Kit[Any], tuple[Any, ...]], Any]


def rows_of(*shapes: Sequence[int]) -> Callable[[np.random.Generator, int], Rows]:
    """Inputs of these shapes a row."""
    return lambda rng, rows: tuple(spread(rng, (rows, *shape)) for shape in shapes)


def _pure(name: str, shapes: Sequence[Sequence[int]], run: Operation) -> OpCase:
    """An operation over arrays alone; a tuple that it returns is several outputs."""

    def outputs(ops: Ops[Any], step: Step[Any], kit: Kit[Any], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        result = run(ops, kit, inputs)
        return cast("tuple[Any, ...]", result) if isinstance(result, tuple) else (result,)

    return OpCase(name, rows_of(*shapes), outputs)


def _shapes() -> list[OpCase]:
    index = np.asarray([[2, 0], [1, 1]])
    return [
        _pure("reshape", [(6, 5)], lambda ops, kit, xs: ops.reshape(xs[0], -1, 3, 10)),
        _pure("split", [(13,)], lambda ops, kit, xs: ops.split(xs[0], (5, 1, 7))),
        _pure("split of heads", [(3, 13)], lambda ops, kit, xs: ops.split(xs[0], (6, 7))),
        _pure("concat", [(5,), (8,)], lambda ops, kit, xs: ops.concat(xs)),
        _pure("concat on axis 1", [(2, 5), (1, 5)], lambda ops, kit, xs: ops.concat(xs, axis=1)),
        _pure("add and multiply", [(7,), (7,)], lambda ops, kit, xs: (xs[0] + xs[1]) * 0.3 + xs[0] * xs[1]),
        _pure("read an index", [(4, 5)], lambda ops, kit, xs: xs[0][:, 1:3, None]),
        OpCase(
            "rows",
            lambda rng, rows: (rng.integers(0, 5, (rows, 3)),),
            lambda ops, step, kit, xs: (ops.rows(kit.vector("table", (5, 7)), xs[0]),),
        ),
        OpCase(
            "rows of a constant index",
            rows_of((1,)),
            lambda ops, step, kit, xs: (
                xs[0] + ops.reshape(ops.rows(kit.vector("table", (5, 7)), kit.session.array(index)), 1, -1),
            ),
        ),
    ]


def _projections() -> list[OpCase]:
    def linear(name: str, columns: int, sizes: Sequence[int], stored: Sequence[Stored], bias: bool) -> OpCase:
        return _pure(
            f"linear {name}",
            [(columns,)],
            lambda ops, kit, xs: ops.linear(xs[0], kit.linear(name, sizes, columns, stored=stored, bias=bias)),
        )

    def embedded(ops: Ops[Any], step: Step[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (ops.embed(xs[0], kit.embedding("table", (20, 9), 13)),)

    def tied(ops: Ops[Any], kit: Kit[Any], xs: tuple[Any, ...]) -> Any:
        return ops.linear(xs[0], kit.session.packer.tied(kit.embedding("table", (20, 9), 13)))

    return [
        linear("odd", 33, (13,), (), False),
        linear("narrow", 3, (1,), (), False),
        linear("wide", 100, (7, 9, 5), ("f32", "f16", "bf16"), True),
        linear("one of several", 48, (40, 24), (), False),
        linear("biased", 7, (5,), (), True),
        linear("quantized", 48, (10, 6, 3), ("affine4", "affine8", "f32"), True),
        OpCase("embed", lambda rng, rows: (rng.integers(0, 29, rows).astype(np.int32),), embedded),
        OpCase("embed several", lambda rng, rows: (rng.integers(0, 29, (rows, 3)).astype(np.int32),), embedded),
        _pure("tied head", [(13,)], tied),
        _pure(
            "linear in f32",
            [(33,)],
            lambda ops, kit, xs: ops.linear(xs[0], kit.linear("routed", (13,), 33, bias=True), wide=True),
        ),
        # Parts of a wider result lie in memory with gaps, and start anywhere.
        _pure(
            "linear of a part",
            [(40,)],
            lambda ops, kit, xs: ops.linear(ops.split(xs[0], (7, 33))[1], kit.linear("odd", (13,), 33)),
        ),
    ]


def _norms() -> list[OpCase]:
    def gated(name: str, act: Activation, gate_first: bool) -> OpCase:
        return _pure(
            f"gated_rms_norm {name}",
            [(3, 5), (3, 5)],
            lambda ops, kit, xs: ops.gated_rms_norm(
                xs[0], xs[1], kit.vector("w", (5,)), 1e-5, gate_first=gate_first, act=act
            ),
        )

    return [
        _pure("rms_norm", [(33,)], lambda ops, kit, xs: ops.rms_norm(xs[0], kit.vector("w", (33,)), 1e-5)),
        _pure("rms_norm wide", [(576,)], lambda ops, kit, xs: ops.rms_norm(xs[0], kit.vector("w", (576,)), 1e-5)),
        _pure("rms_norm plain", [(3, 7)], lambda ops, kit, xs: ops.rms_norm(xs[0], None, 1e-6)),
        _pure("rms_norm of heads", [(3, 7)], lambda ops, kit, xs: ops.rms_norm(xs[0], kit.vector("w", (7,)), 1e-6)),
        _pure("rms_norm of groups", [(2, 5)], lambda ops, kit, xs: ops.rms_norm(xs[0], kit.vector("w", (2, 5)), 1e-6)),
        _pure(
            "layer_norm",
            [(13,)],
            lambda ops, kit, xs: ops.layer_norm(xs[0], kit.vector("w", (13,)), kit.vector("b", (13,)), 1e-5),
        ),
        _pure(
            "layer_norm without bias",
            [(3, 5)],
            lambda ops, kit, xs: ops.layer_norm(xs[0], kit.vector("w", (5,)), None, 1e-6),
        ),
        gated("before", "silu", True),
        gated("after", "sigmoid", False),
    ]


def _elementwise() -> list[OpCase]:
    activations: tuple[Activation, ...] = ("silu", "gelu", "relu2", "sigmoid")
    widths = ((3,), (4,), (5, 7))

    def of(act: Activation) -> Operation:
        return lambda ops, kit, xs: tuple(ops.activate(x, act) for x in xs)

    def glu(act: Activation, limit: float | None) -> Operation:
        return lambda ops, kit, xs: ops.glu(xs[0], act, limit)

    return [
        *(_pure(f"activate {act}", widths, of(act)) for act in activations),
        _pure("sigmoid", widths, lambda ops, kit, xs: tuple(ops.sigmoid(x) for x in xs)),
        _pure("softplus", widths, lambda ops, kit, xs: tuple(ops.softplus(x * 8.0) for x in xs)),
        _pure("tanh", widths, lambda ops, kit, xs: tuple(ops.tanh(x) for x in xs)),
        _pure("exp", widths, lambda ops, kit, xs: tuple(ops.exp(x) for x in xs)),
        _pure("sqrt", widths, lambda ops, kit, xs: tuple(ops.sqrt(ops.abs(x)) for x in xs)),
        _pure("abs", widths, lambda ops, kit, xs: tuple(ops.abs(x) for x in xs)),
        _pure("sign", widths, lambda ops, kit, xs: tuple(ops.sign(x) for x in xs)),
        _pure("maximum", widths, lambda ops, kit, xs: tuple(ops.maximum(x, 0.25) for x in xs)),
        _pure("softcap", widths, lambda ops, kit, xs: tuple(ops.softcap(x * 8.0, 3.0) for x in xs)),
        _pure("activate far out", [(5,)], lambda ops, kit, xs: ops.activate(xs[0] * 100.0, "silu")),
        _pure("glu silu", [(26,)], glu("silu", None)),
        _pure("glu gelu", [(6,)], glu("gelu", None)),
        _pure("glu limited", [(10,)], glu("silu", 1.5)),
        _pure("glu wide", [(96,)], glu("silu", None)),
    ]


def _reductions() -> list[OpCase]:
    return [
        _pure("softmax", [(13,)], lambda ops, kit, xs: ops.softmax(xs[0])),
        _pure("softmax on axis 1", [(3, 5)], lambda ops, kit, xs: ops.softmax(xs[0], axis=1)),
        _pure("sum", [(13,)], lambda ops, kit, xs: ops.sum(xs[0], -1)),
        _pure("sum on axis 1", [(3, 7)], lambda ops, kit, xs: ops.sum(xs[0], 1)),
        _pure("mix", [(3,), (3, 7)], lambda ops, kit, xs: ops.mix(xs[0], xs[1])),
        _pure("mix of several", [(3, 2), (3, 7)], lambda ops, kit, xs: ops.mix(xs[0], xs[1])),
        _pure("sinkhorn", [(4, 4)], lambda ops, kit, xs: ops.sinkhorn(ops.softmax(xs[0]), 5, 1e-6)),
    ]


def _experts() -> list[OpCase]:
    routers = {
        "softmax": Router(k=2, score="softmax"),
        "softmax kept as is": Router(k=3, score="softmax", renorm=False, scale=2.5),
        "sigmoid with bias": Router(k=3, score="sigmoid", scale=1.5),
        "sigmoid in groups": Router(k=3, score="sigmoid", groups=3, keep_groups=2),
        "scaled by expert": Router(k=2, score="softmax", expert_scale=tuple(1.0 + 0.25 * e for e in range(9))),
    }

    def route(name: str, router: Router) -> OpCase:
        biased = "bias" in name or "groups" in name
        return _pure(
            f"route {name}",
            [(9,)],
            lambda ops, kit, xs: ops.route(xs[0], router, kit.vector("bias", (9,)) if biased else None),
        )

    def experts(name: str, act: Activation, gated: bool, limit: float | None) -> OpCase:
        return _pure(
            f"experts {name}",
            [(7,), (5,)],
            lambda ops, kit, xs: ops.experts(
                xs[0],
                *ops.route(xs[1], Router(k=2, score="softmax")),
                kit.experts(name, 5, 7, 9, act=act, gated=gated, limit=limit),
            ),
        )

    return [
        *(route(name, router) for name, router in routers.items()),
        _pure("route of equals", [(9,)], lambda ops, kit, xs: ops.route(ops.sign(xs[0]), Router(4, "softmax"))),
        experts("gated", "silu", True, None),
        experts("limited", "gelu", True, 0.5),
        experts("plain", "relu2", False, None),
    ]


def _positions() -> list[OpCase]:
    def rope(name: str, width: int, rope: Rope, *, shift: int = 0, axes: bool = False) -> OpCase:
        return OpCase(
            f"rope {name}",
            rows_of((2, width)),
            lambda ops, step, kit, xs: (ops.rope(step, xs[0], rope, shift=shift),),
            axes=axes,
        )

    frequencies = (1.0, 0.5, 0.1)
    return [
        rope("halves", 6, Rope(frequencies)),
        rope("interleaved", 6, Rope(frequencies, interleaved=True)),
        rope("partial", 11, Rope(frequencies)),
        rope("partial interleaved", 7, Rope(frequencies, interleaved=True)),
        rope("scaled", 6, Rope(frequencies, scale=1.25)),
        rope("with pairs left alone", 8, Rope((1.0, 0.25, 0.0, 0.0))),
        rope("shifted", 6, Rope(frequencies), shift=-3),
        rope("in sections", 6, Rope(frequencies, sections=(1, 1, 1)), axes=True),
        rope("wide", 64, Rope(tuple(10000.0 ** (-i / 32) for i in range(32)))),
    ]


PURE_CASES: tuple[OpCase, ...] = (
    *_shapes(),
    *_projections(),
    *_norms(),
    *_elementwise(),
    *_reductions(),
    *_experts(),
    *_positions(),
)
"""Operations without a state."""
