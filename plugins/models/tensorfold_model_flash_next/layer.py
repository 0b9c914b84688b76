"""One layer: n-grams injected into the streams (in few), then a mixer and a mixture of experts around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import Block, gated_mlp
from tensorfold.compute.layers.gated_attention import gated_attention
from tensorfold.compute.layers.gated_delta import gated_delta
from tensorfold.compute.layers.hyper_connections import (
    GatedConnection,
    GatedMixture,
    gated_connection,
    gated_mixture,
)
from tensorfold.compute.layers.moe import mixture
from tensorfold.compute.layers.ngrams import NgramInjection, ngram_injection
from tensorfold.compute.layers.sparse_index import block_indexer, block_indexer_states
from tensorfold.contracts.arrays import A
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV, Group, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_flash_next.config import FlashNextConfig

__all__ = ["LayerBuilder", "StreamLayer", "layer_states"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StreamLayer(Generic[A]):
    """Twice: a mixture of the streams, a block, and back into the streams. The mixtures normalize."""

    ngrams: NgramInjection[A] | None
    mixer_streams: GatedConnection[A]
    mixer: Block[A]
    """Mixes rows of a sequence: a gated delta net or attention."""
    mlp_streams: GatedConnection[A]
    mlp: Block[A]

    def __call__(self, ops: Ops[A], step: Step[A], streams: A) -> A:
        """`[R, n, H]` to `[R, n, H]`."""
        if self.ngrams is not None:
            streams = streams + self.ngrams(ops, step, streams)
        x, shares = self.mixer_streams.collapse(ops, streams)
        streams = self.mixer_streams.inject(ops, streams, self.mixer(ops, step, x), shares)
        x, shares = self.mlp_streams.collapse(ops, streams)
        return self.mlp_streams.inject(ops, streams, self.mlp(ops, step, x), shares)


@dataclass(frozen=True, slots=True, eq=False)
class LayerBuilder(Generic[A]):
    """Builds the layers of one checkpoint, the draft head's among them."""

    config: FlashNextConfig
    weights: Weights[A]

    def layer(self, prefix: str, state: str, number: int) -> StreamLayer[A]:
        """The target's layer of this number, whose modules are under a prefix and whose states begin with a name."""
        config, weights = self.config, self.weights
        shape = config.ngrams.get(number)
        ngrams = None if shape is None else ngram_injection(weights, f"{prefix}.ple", state, shape, eps=config.eps)
        return self._layer(prefix, state, linear=config.linear[number], ngrams=ngrams)

    def draft_layer(self, prefix: str, state: str) -> StreamLayer[A]:
        """The draft head's layer, which is one of attention and without n-grams."""
        return self._layer(prefix, state, linear=False, ngrams=None)

    def mixture_of_streams(self, prefix: str) -> GatedMixture[A]:
        """The last one of target or draft head, from streams to one row."""
        streams = self.config.streams
        return gated_mixture(
            self.weights,
            prefix,
            count=streams.count,
            hidden=self.config.hidden,
            rank=streams.rank,
            eps=self.config.eps,
        )

    def _layer(self, prefix: str, state: str, *, linear: bool, ngrams: NgramInjection[A] | None) -> StreamLayer[A]:
        mixer = self._delta(f"{prefix}.linear_attn", state) if linear else self._attention(f"{prefix}.self_attn", state)
        return self.weights.block(
            StreamLayer(
                ngrams=ngrams,
                mixer_streams=self._connection(f"{prefix}.attn_hyper_connection"),
                mixer=self.weights.block(mixer),
                mlp_streams=self._connection(f"{prefix}.mlp_hyper_connection"),
                mlp=self.weights.block(self._mixture(f"{prefix}.mlp")),
            )
        )

    def _connection(self, prefix: str) -> GatedConnection[A]:
        streams = self.config.streams
        return gated_connection(
            self.weights,
            prefix,
            count=streams.count,
            hidden=self.config.hidden,
            rank=streams.rank,
            eps=self.config.eps,
        )

    def _delta(self, prefix: str, state: str) -> Block[A]:
        config = self.config
        return gated_delta(
            self.weights,
            prefix,
            state,
            hidden=config.hidden,
            sizes=config.delta,
            eps=config.eps,
            act="silu",
            gate_act=config.gate_act,
        )

    def _attention(self, prefix: str, state: str) -> Block[A]:
        config, shape = self.config, self.config.attention
        indexer = block_indexer(
            self.weights,
            f"{prefix}.indexer",
            f"{state}.index",
            shape.index,
            hidden=config.hidden,
            eps=config.eps,
            rope=shape.rope,
        )
        return gated_attention(
            self.weights,
            prefix,
            f"{state}.kv",
            hidden=config.hidden,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            rope=shape.rope,
            eps=config.eps,
            zero_centred=True,
            bias=False,
            indexer=self.weights.block(indexer),
        )

    def _mixture(self, prefix: str) -> Block[A]:
        shape, hidden = self.config.mixture, self.config.hidden
        shared = gated_mlp(
            self.weights, f"{prefix}.shared_expert", hidden=hidden, width=shape.shared, act="silu", bias=False
        )
        return mixture(
            self.weights,
            prefix,
            hidden=hidden,
            width=shape.width,
            count=shape.experts,
            router=shape.router,
            act="silu",
            shared=self.weights.block(shared),
            shared_gate="shared_expert_gate",
        )


def layer_states(config: FlashNextConfig, state: str, *, linear: bool, group: Group = "main") -> dict[str, StateSpec]:
    """What a layer's mixer keeps, by names that begin with `state`."""
    if linear:
        return config.delta.states(state, group)
    shape = config.attention
    return {
        f"{state}.kv": KV(shape.kv_heads, shape.head_dim, shape.head_dim, group=group),
        **block_indexer_states(f"{state}.index", shape.index, group),
    }
