"""The shared blocks against the same formulas written out in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.layers import (
    Attention,
    Block,
    GatedMlp,
    ResidualLayer,
    RmsNorm,
    attention,
    gated_mlp,
    rms_norm,
)
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.packing import ComposedPacker
from tensorfold.compute.runner import Runner
from tensorfold.compute.weights import CheckpointWeights
from tensorfold.contracts.arrays import A
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.handles import Embedding, Rope
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV, TableKey
from tensorfold.contracts.step import Segment, Step
from tensorfold.contracts.tensors import Dense
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_tensors
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold.testing.reference import NumpyPrimitives, ReferenceBackend

Floats = NDArray[np.float64]
B = TypeVar("B")

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, WIDTH, ROWS = 12, 4, 2, 6, 10, 9
EPS = 1e-5

SHAPES: dict[str, tuple[int, ...]] = {
    "a.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
    "a.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "a.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
    "a.v_proj.bias": (KV_HEADS * HEAD_DIM,),
    "a.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
    "a.q_norm.weight": (HEAD_DIM,),
    "a.k_norm.weight": (HEAD_DIM,),
    "m.gate_proj.weight": (WIDTH, HIDDEN),
    "m.up_proj.weight": (WIDTH, HIDDEN),
    "m.down_proj.weight": (HIDDEN, WIDTH),
    "n.weight": (HIDDEN,),
}
TENSORS = RandomTensors(SHAPES, seed=2)
ROPE = Rope((1.0, 0.1, 0.01))


class Inputs:
    """The blocks' tensors, and a table whose rows are what goes in."""

    def __init__(self) -> None:
        drawn = np.random.default_rng(5).standard_normal((ROWS, HIDDEN))
        self.table = drawn.astype(np.float32)

    def weights(self, packer: Any) -> CheckpointWeights[Any]:
        return CheckpointWeights(TENSORS, packer)

    def embedding(self, packer: Any) -> Embedding:
        embedding: Embedding = packer.embedding([Dense(self.table, "f32")])
        return embedding


@dataclass(frozen=True)
class OneBlock:
    """A decoder of one block."""

    embedding: Embedding
    block: Block[Any]

    @property
    def draft(self) -> None:
        return

    def prepare(self, step: Step[Any]) -> Mapping[str, NDArray[Any]]:
        return {}

    def forward(self, ops: Ops[Any], step: Step[Any]) -> Any:
        return self.block(ops, step, ops.embed(step.ids, self.embedding))

    def logits(self, ops: Ops[Any], hidden: Any) -> Any:
        return hidden


def run(make: Any, window: int | None = None) -> Floats:
    """What a block makes of the inputs, in float64: `make(weights)` builds it."""
    session = ReferenceBackend("float64").open(BackendSettings())
    inputs = Inputs()
    decoder = OneBlock(inputs.embedding(session.packer), make(inputs.weights(session.packer)))
    geometry = Geometry(
        vocabulary=ROWS,
        hidden=HIDDEN,
        layers=1,
        window=64,
        states={"kv": KV(KV_HEADS, HEAD_DIM, HEAD_DIM, window)},
        stop_ids=frozenset(),
    )
    runner = Runner(decoder, session, geometry, lanes=1, pages={TableKey("main", window): 3}, identity="block")
    slot = runner.acquire()
    assert slot is not None
    output = runner.forward([Segment(slot, tuple(range(ROWS)), 0, want="all", kind="chunk")])
    return np.asarray(output.hidden, np.float64)


def tensor(name: str) -> Floats:
    return TENSORS.read(name).values.astype(np.float64)


def normed(x: Floats, weight: Floats) -> Floats:
    scaled: Floats = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight
    return scaled


def turned(x: Floats) -> Floats:
    """`[R, h, d]`, halves of a head as pairs."""
    angles = np.arange(len(x))[:, None, None] * np.asarray(ROPE.inv_freq)
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)], axis=-1
    )


def attended(
    x: Floats,
    *,
    rope: bool = False,
    norm: float | None = None,
    scale: float = HEAD_DIM**-0.5,
    softcap: float | None = None,
    window: int | None = None,
) -> Floats:
    """Grouped-query attention; `norm` is what is added to the norms' weights."""
    q = (x @ tensor("a.q_proj.weight").T).reshape(-1, HEADS, HEAD_DIM)
    k = (x @ tensor("a.k_proj.weight").T).reshape(-1, KV_HEADS, HEAD_DIM)
    v = (x @ tensor("a.v_proj.weight").T + tensor("a.v_proj.bias")).reshape(-1, KV_HEADS, HEAD_DIM)
    if norm is not None:
        q, k = normed(q, tensor("a.q_norm.weight") + norm), normed(k, tensor("a.k_norm.weight") + norm)
    if rope:
        q, k = turned(q), turned(k)
    out = np.zeros_like(q)
    for row in range(len(x)):
        first = 0 if window is None else max(0, row - window + 1)
        for head in range(HEADS):
            group = head // (HEADS // KV_HEADS)
            scores = k[first : row + 1, group] @ q[row, head] * scale
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            shares = np.exp(scores - scores.max())
            out[row, head] = shares / shares.sum() @ v[first : row + 1, group]
    return out.reshape(len(x), -1) @ tensor("a.o_proj.weight").T


def plain(weights: CheckpointWeights[A], **options: Any) -> Attention[A]:
    return attention(
        weights,
        "a",
        "kv",
        **{"hidden": HIDDEN, "heads": HEADS, "kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "rope": None, **options},
    )


@pytest.mark.parametrize(
    ("options", "expected", "window"),
    [
        ({}, {}, None),
        ({"rope": ROPE}, {"rope": True}, None),
        ({"norm_eps": EPS, "rope": ROPE}, {"norm": 0.0, "rope": True}, None),
        ({"norm_eps": EPS, "zero_centred": True}, {"norm": 1.0}, None),
        ({"scale": 0.3, "softcap": 2.0}, {"scale": 0.3, "softcap": 2.0}, None),
        ({"rope": ROPE}, {"rope": True, "window": 4}, 4),
    ],
)
def test_attention_is_its_formula(options: dict[str, Any], expected: dict[str, Any], window: int | None) -> None:
    """Each option: rotation, head norms, scale, softcap, window; a bias on one part of the fused group."""
    got = run(lambda weights: plain(weights, **options), window)
    np.testing.assert_allclose(got, attended(Inputs().table.astype(np.float64), **expected), rtol=0, atol=1e-6)


def fed_forward(x: Floats, limit: float | None = None) -> Floats:
    gate, up = x @ tensor("m.gate_proj.weight").T, x @ tensor("m.up_proj.weight").T
    if limit is not None:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    product: Floats = (gate / (1 + np.exp(-gate)) * up) @ tensor("m.down_proj.weight").T
    return product


@pytest.mark.parametrize("limit", [None, 0.5])
def test_a_gated_mlp_is_its_formula(limit: float | None) -> None:
    """Gate first, then up; a limit cuts the gate above and up on both sides."""
    got = run(lambda weights: gated_mlp(weights, "m", hidden=HIDDEN, width=WIDTH, act="silu", limit=limit))
    np.testing.assert_allclose(got, fed_forward(Inputs().table.astype(np.float64), limit), rtol=0, atol=1e-6)


def test_a_residual_layer_adds_what_its_parts_make_of_the_normed_rows() -> None:
    """x + mixer(norm(x)), then the same with the feed-forward block."""

    def make(weights: CheckpointWeights[A]) -> ResidualLayer[A]:
        norm: RmsNorm[A] = rms_norm(weights, "n", HIDDEN, EPS)
        mlp: GatedMlp[A] = gated_mlp(weights, "m", hidden=HIDDEN, width=WIDTH, act="silu")
        return ResidualLayer(mixer_norm=norm, mixer=plain(weights, rope=ROPE), mlp_norm=replace(norm), mlp=mlp)

    x = Inputs().table.astype(np.float64)
    mixed = x + attended(normed(x, tensor("n.weight")), rope=True)
    np.testing.assert_allclose(run(make), mixed + fed_forward(normed(mixed, tensor("n.weight"))), rtol=0, atol=1e-6)


def test_a_backend_is_asked_for_each_block_once_parts_before_the_whole() -> None:
    """It sees handles and constants, and what it returns is what runs."""

    class Watching(ComposedPacker[NDArray[Any]]):
        def block(self, block: B) -> B:
            asked.append(type(block).__name__)
            return block

    asked: list[str] = []
    config = fake_config()
    load_decoder(FakeFamily(), config, RandomTensors(fake_tensors(config)), Watching(NumpyPrimitives()))
    assert asked[:3] == ["Attention", "GatedMlp", "ResidualLayer"]
    assert asked.count("ResidualLayer") == 6 and len(asked) == 18
