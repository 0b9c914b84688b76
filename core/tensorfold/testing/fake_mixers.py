"""The fake family's layers beyond plain attention: one for each kind of state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic

from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import ConvWeight, Experts, LatentUp, Linear, Rope, Router
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import Conv, Group, IndexKeys, Latent, Recent, Recurrent, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold.testing.fake_sizes import (
    DELTA_CHANNELS,
    DELTA_DIM,
    DELTA_HEADS,
    DELTA_KEY_HEADS,
    DELTA_KEYS,
    DELTA_PARTS,
    DELTA_TAPS,
    DELTA_VALUES,
    EPS,
    EXPERT_WIDTH,
    EXPERTS,
    EXPERTS_CHOSEN,
    HEADS,
    HIDDEN,
    INDEX_DIM,
    INDEX_HEADS,
    INDEX_PARTS,
    INDEX_POOL,
    INDEX_TOPK,
    LATENT,
    LATENT_NOPE,
    LATENT_PARTS,
    LATENT_ROPE,
    LATENT_V,
    SSD_CHANNELS,
    SSD_DILATION,
    SSD_DIM,
    SSD_GROUPS,
    SSD_HEADS,
    SSD_PARTS,
    SSD_STATE,
    SSD_STATES,
    SSD_TAPS,
    SSD_VALUES,
)

__all__ = [
    "DeltaNet",
    "Mixture",
    "SparseLatent",
    "StateSpace",
    "delta_net",
    "delta_states",
    "delta_tensors",
    "mixture",
    "mixture_tensors",
    "sparse_latent",
    "sparse_states",
    "sparse_tensors",
    "state_space",
    "state_space_states",
    "state_space_tensors",
]

ROUTER: Final = Router(k=EXPERTS_CHOSEN, score="sigmoid", scale=1.5)


@dataclass(frozen=True, slots=True, eq=False)
class SparseLatent(Generic[A]):
    """Latent attention over the pools of positions that an indexer chooses (MLA with DSA, as in GLM)."""

    name: str
    rope: Rope
    inputs: Linear
    """Query without and with rotation, latent and rotary key."""
    index: Linear
    """Index queries, key and weights."""
    latent_norm: A
    up: LatentUp
    out: Linear

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        nope, turned, latent, key = ops.split(ops.linear(x, self.inputs), LATENT_PARTS)
        turned = ops.rope(step, ops.reshape(turned, -1, HEADS, LATENT_ROPE), self.rope)
        key = ops.reshape(ops.rope(step, ops.reshape(key, -1, 1, LATENT_ROPE), self.rope), -1, LATENT_ROPE)
        queries, index_key, weights = ops.split(ops.linear(x, self.index), INDEX_PARTS)
        pooled = ops.sum(ops.recent(step, f"{self.name}.recent", index_key), 1)
        chosen = ops.index_topk(
            step,
            f"{self.name}.index",
            ops.reshape(queries, -1, INDEX_HEADS, INDEX_DIM),
            pooled * (1 / INDEX_POOL),
            weights,
            topk=INDEX_TOPK,
            scale=INDEX_DIM**-0.5,
        )
        seen = ops.attend_latent(
            step,
            f"{self.name}.latent",
            ops.reshape(nope, -1, HEADS, LATENT_NOPE),
            turned,
            ops.rms_norm(latent, self.latent_norm, EPS),
            key,
            self.up,
            scale=(LATENT_NOPE + LATENT_ROPE) ** -0.5,
            select=chosen,
        )
        return ops.linear(ops.reshape(seen, -1, HEADS * LATENT_V), self.out)


def sparse_latent(weights: Weights[A], prefix: str, name: str, rope: Rope) -> SparseLatent[A]:
    """The layer of modules under a prefix, whose states begin with a name."""
    return SparseLatent(
        name=name,
        rope=rope,
        inputs=weights.linear(f"{prefix}.inputs", sizes=(sum(LATENT_PARTS),), columns=HIDDEN),
        index=weights.linear(f"{prefix}.index", sizes=(sum(INDEX_PARTS),), columns=HIDDEN),
        latent_norm=weights.vector(f"{prefix}.latent_norm.weight", shape=(LATENT,)),
        up=weights.latent_up(f"{prefix}.kv_b_proj", HEADS, LATENT_NOPE, LATENT_V),
        out=weights.linear(f"{prefix}.out", sizes=(HIDDEN,), columns=HEADS * LATENT_V),
    )


def sparse_tensors(prefix: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes."""
    return {
        f"{prefix}.inputs.weight": (sum(LATENT_PARTS), HIDDEN),
        f"{prefix}.index.weight": (sum(INDEX_PARTS), HIDDEN),
        f"{prefix}.latent_norm.weight": (LATENT,),
        f"{prefix}.kv_b_proj.weight": (HEADS * (LATENT_NOPE + LATENT_V), LATENT),
        f"{prefix}.out.weight": (HIDDEN, HEADS * LATENT_V),
    }


def sparse_states(name: str) -> dict[str, StateSpec]:
    """Latent rows, pooled index keys, and the keys of the pool that is not full yet."""
    return {
        f"{name}.latent": Latent(LATENT, LATENT_ROPE),
        f"{name}.index": IndexKeys(INDEX_DIM, INDEX_POOL),
        f"{name}.recent": Recent(INDEX_DIM, INDEX_POOL),
    }


@dataclass(frozen=True, slots=True, eq=False)
class DeltaNet(Generic[A]):
    """A short convolution and a gated delta net (as in Qwen3.5)."""

    name: str
    inputs: Linear
    """Query, key and value; output gate; step and decay."""
    conv: ConvWeight
    decay: A
    """`[heads]`, negative."""
    step_bias: A
    norm: A
    out: Linear

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        mixed, gate, beta, decay = ops.split(ops.linear(x, self.inputs), DELTA_PARTS)
        mixed = ops.short_conv(step, f"{self.name}.conv", mixed, self.conv, act="silu")
        q, k, v = ops.split(mixed, (DELTA_KEYS, DELTA_KEYS, DELTA_VALUES))
        out = ops.gated_delta(
            step,
            f"{self.name}.delta",
            ops.reshape(q, -1, DELTA_KEY_HEADS, DELTA_DIM),
            ops.reshape(k, -1, DELTA_KEY_HEADS, DELTA_DIM),
            ops.reshape(v, -1, DELTA_HEADS, DELTA_DIM),
            ops.softplus(decay + self.step_bias) * self.decay,
            ops.sigmoid(beta),
            scale=DELTA_DIM**-0.5,
        )
        gate = ops.reshape(gate, -1, DELTA_HEADS, DELTA_DIM)
        out = ops.gated_rms_norm(out, gate, self.norm, EPS, gate_first=False, act="silu")
        return ops.linear(ops.reshape(out, -1, DELTA_VALUES), self.out)


def delta_net(weights: Weights[A], prefix: str, name: str) -> DeltaNet[A]:
    """The layer of modules under a prefix, whose states begin with a name."""
    return DeltaNet(
        name=name,
        inputs=weights.linear(f"{prefix}.inputs", sizes=(sum(DELTA_PARTS),), columns=HIDDEN),
        conv=weights.conv(f"{prefix}.conv", shape=(DELTA_CHANNELS, DELTA_TAPS)),
        decay=weights.vector(f"{prefix}.A_log", fn="neg_exp", shape=(DELTA_HEADS,)),
        step_bias=weights.vector(f"{prefix}.dt_bias", shape=(DELTA_HEADS,)),
        norm=weights.vector(f"{prefix}.norm.weight", shape=(DELTA_DIM,)),
        out=weights.linear(f"{prefix}.out", sizes=(HIDDEN,), columns=DELTA_VALUES),
    )


def delta_tensors(prefix: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes."""
    return {
        f"{prefix}.inputs.weight": (sum(DELTA_PARTS), HIDDEN),
        f"{prefix}.conv.weight": (DELTA_CHANNELS, 1, DELTA_TAPS),
        f"{prefix}.A_log": (DELTA_HEADS,),
        f"{prefix}.dt_bias": (DELTA_HEADS,),
        f"{prefix}.norm.weight": (DELTA_DIM,),
        f"{prefix}.out.weight": (HIDDEN, DELTA_VALUES),
    }


def delta_states(name: str, group: Group) -> dict[str, StateSpec]:
    """The convolution's tail and the recurrent state."""
    return {
        f"{name}.conv": Conv(DELTA_CHANNELS, DELTA_TAPS, group=group),
        f"{name}.delta": Recurrent((DELTA_HEADS, DELTA_DIM, DELTA_DIM), group=group),
    }


@dataclass(frozen=True, slots=True, eq=False)
class StateSpace(Generic[A]):
    """A dilated convolution and a Mamba-2 recurrence (as in Nemotron)."""

    name: str
    inputs: Linear
    """Gate; convolved values, b and c; step."""
    conv: ConvWeight
    decay: A
    """`[heads]`, negative."""
    step_bias: A
    skip: A
    norm: A
    out: Linear

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        gate, mixed, dt = ops.split(ops.linear(x, self.inputs), SSD_PARTS)
        mixed = ops.short_conv(step, f"{self.name}.conv", mixed, self.conv, act="silu")
        values, b, c = ops.split(mixed, (SSD_VALUES, SSD_STATES, SSD_STATES))
        out = ops.ssd(
            step,
            f"{self.name}.ssd",
            ops.reshape(values, -1, SSD_HEADS, SSD_DIM),
            ops.softplus(dt + self.step_bias),
            self.decay,
            ops.reshape(b, -1, SSD_GROUPS, SSD_STATE),
            ops.reshape(c, -1, SSD_GROUPS, SSD_STATE),
            self.skip,
        )
        grouped = (-1, SSD_GROUPS, SSD_VALUES // SSD_GROUPS)
        out = ops.gated_rms_norm(
            ops.reshape(out, *grouped), ops.reshape(gate, *grouped), self.norm, EPS, gate_first=True, act="silu"
        )
        return ops.linear(ops.reshape(out, -1, SSD_VALUES), self.out)


def state_space(weights: Weights[A], prefix: str, name: str) -> StateSpace[A]:
    """The layer of modules under a prefix, whose states begin with a name."""
    return StateSpace(
        name=name,
        inputs=weights.linear(f"{prefix}.inputs", sizes=(sum(SSD_PARTS),), columns=HIDDEN),
        conv=weights.conv(f"{prefix}.conv", shape=(SSD_CHANNELS, SSD_TAPS)),
        decay=weights.vector(f"{prefix}.A_log", fn="neg_exp", shape=(SSD_HEADS,)),
        step_bias=weights.vector(f"{prefix}.dt_bias", shape=(SSD_HEADS,)),
        skip=weights.vector(f"{prefix}.D", shape=(SSD_HEADS,)),
        norm=weights.vector(f"{prefix}.norm.weight", shape=(SSD_GROUPS, SSD_VALUES // SSD_GROUPS)),
        out=weights.linear(f"{prefix}.out", sizes=(HIDDEN,), columns=SSD_VALUES),
    )


def state_space_tensors(prefix: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes."""
    return {
        f"{prefix}.inputs.weight": (sum(SSD_PARTS), HIDDEN),
        f"{prefix}.conv.weight": (SSD_CHANNELS, 1, SSD_TAPS),
        f"{prefix}.conv.bias": (SSD_CHANNELS,),
        f"{prefix}.A_log": (SSD_HEADS,),
        f"{prefix}.dt_bias": (SSD_HEADS,),
        f"{prefix}.D": (SSD_HEADS,),
        f"{prefix}.norm.weight": (SSD_VALUES,),
        f"{prefix}.out.weight": (HIDDEN, SSD_VALUES),
    }


def state_space_states(name: str) -> dict[str, StateSpec]:
    """The convolution's tail and the recurrent state."""
    return {
        f"{name}.conv": Conv(SSD_CHANNELS, SSD_TAPS, SSD_DILATION),
        f"{name}.ssd": Recurrent((SSD_HEADS, SSD_DIM, SSD_STATE)),
    }


@dataclass(frozen=True, slots=True, eq=False)
class Mixture(Generic[A]):
    """A mixture of experts with a correction bias (as in GLM)."""

    gate: Linear
    bias: A
    experts: Experts

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        ids, weights = ops.route(ops.linear(x, self.gate, wide=True), ROUTER, self.bias)
        return ops.experts(x, ids, weights, self.experts)


def mixture(weights: Weights[A], prefix: str) -> Mixture[A]:
    """The block of modules under a prefix."""
    return Mixture(
        gate=weights.linear(f"{prefix}.gate", sizes=(EXPERTS,), columns=HIDDEN),
        bias=weights.vector(f"{prefix}.correction_bias", shape=(EXPERTS,)),
        experts=weights.experts(f"{prefix}.experts", EXPERTS, shape=(EXPERT_WIDTH, HIDDEN)),
    )


def mixture_tensors(prefix: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes."""
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}.gate.weight": (EXPERTS, HIDDEN),
        f"{prefix}.correction_bias": (EXPERTS,),
    }
    for expert in range(EXPERTS):
        shapes |= {
            f"{prefix}.experts.{expert}.gate_proj.weight": (EXPERT_WIDTH, HIDDEN),
            f"{prefix}.experts.{expert}.up_proj.weight": (EXPERT_WIDTH, HIDDEN),
            f"{prefix}.experts.{expert}.down_proj.weight": (HIDDEN, EXPERT_WIDTH),
        }
    return shapes
