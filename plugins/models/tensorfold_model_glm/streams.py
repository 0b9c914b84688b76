"""GLM-5.3-Flash's layers: several residual streams, mixed around every block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import Block, RmsNorm, rms_norm
from tensorfold.compute.layers.hyper_connections import SinkhornConnection, sinkhorn_connection, spread
from tensorfold.contracts.arrays import A
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights
from tensorfold_model_glm.config import GlmConfig, StreamConfig
from tensorfold_model_glm.parts import ChoosingAttention, attention, feed_forward, linear_mixer
from tensorfold_model_glm.schedule import Layer, Mixer

__all__ = ["StreamLayer", "StreamLayers", "stream_layer"]


@dataclass(frozen=True, slots=True, eq=False)
class StreamLayer(Generic[A]):
    """Twice: a mixture of the streams, a norm, a block, and back into the streams."""

    mixer_streams: SinkhornConnection[A]
    mixer_norm: RmsNorm[A]
    mixer: Block[A]
    """Mixes rows of a sequence: attention or the linear mixer."""
    mlp_streams: SinkhornConnection[A]
    mlp_norm: RmsNorm[A]
    mlp: Block[A]

    def __call__(self, ops: Ops[A], step: Step[A], streams: A) -> A:
        """`[R, n, H]` to `[R, n, H]`."""
        x, weights = self.mixer_streams.collapse(ops, streams)
        mixed = self.mixer(ops, step, self.mixer_norm(ops, x))
        streams = self.mixer_streams.expand(ops, streams, mixed, weights)
        x, weights = self.mlp_streams.collapse(ops, streams)
        return self.mlp_streams.expand(ops, streams, self.mlp(ops, step, self.mlp_norm(ops, x)), weights)


@dataclass(frozen=True, slots=True, eq=False)
class StreamLayers(Generic[A]):
    """All layers, in turn, from equal streams to their mean."""

    count: int
    """Of streams."""
    layers: tuple[StreamLayer[A], ...]

    def __call__(self, ops: Ops[A], step: Step[A], x: A) -> A:
        """`[R, H]` to `[R, H]`."""
        streams = spread(ops, x, self.count)
        for layer in self.layers:
            streams = layer(ops, step, streams)
        mean: A = ops.sum(streams, 1) * (1 / self.count)
        return mean


def stream_layer(
    config: GlmConfig, streams: StreamConfig, weights: Weights[A], prefix: str, state: str, layer: Layer
) -> StreamLayer[A]:
    """The layer of modules under a prefix, whose states begin with a name."""

    def connection(name: str) -> SinkhornConnection[A]:
        return sinkhorn_connection(
            weights,
            f"{prefix}.{name}",
            count=streams.count,
            hidden=config.hidden,
            norm_eps=config.eps,
            iterations=streams.iterations,
            eps=streams.eps,
        )

    mixer: Block[A]
    if layer.mixer is Mixer.LINEAR:
        mixer = linear_mixer(config, weights, f"{prefix}.self_attn", state)
    else:
        mixer = ChoosingAttention(attention(config, weights, f"{prefix}.self_attn", state, layer.mixer))
    return weights.block(
        StreamLayer(
            mixer_streams=connection("hc_attn"),
            mixer_norm=rms_norm(weights, f"{prefix}.input_layernorm", config.hidden, config.eps),
            mixer=mixer,
            mlp_streams=connection("hc_ffn"),
            mlp_norm=rms_norm(weights, f"{prefix}.post_attention_layernorm", config.hidden, config.eps),
            mlp=feed_forward(config, weights, f"{prefix}.mlp", sparse=layer.sparse),
        )
    )
