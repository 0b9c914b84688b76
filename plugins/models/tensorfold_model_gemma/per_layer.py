"""Per-layer embeddings: every layer of an E-model gets a small row of its own for each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import RmsNorm, rms_norm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, Embedding, Linear
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.weights import Weights
from tensorfold_model_gemma.shape import GemmaConfig, PerLayerSizes

__all__ = ["PerLayerGate", "PerLayerInputs", "per_layer_gate", "per_layer_inputs"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PerLayerInputs(Generic[A]):
    """(norm(project(x) / sqrt(H)) + sqrt(d) embed(token)) / sqrt(2), for all layers at once."""

    embedding: Embedding
    """`[vocabulary, layers * d]`."""
    projection: Linear
    norm: RmsNorm[A]
    layers: int
    width: int
    """d."""
    hidden: int
    """H."""

    def __call__(self, ops: Ops[A], ids: A, x: A) -> A:
        """`[R]` ids and the scaled embeddings `[R, H]` to `[R, layers, d]`."""
        shape = (-1, self.layers, self.width)
        token = ops.reshape(ops.embed(ids, self.embedding) * self.width**0.5, *shape)
        projected = ops.reshape(ops.linear(x, self.projection) * self.hidden**-0.5, *shape)
        both: A = (self.norm(ops, projected) + token) * 2.0**-0.5
        return both


@dataclass(frozen=True, slots=True, eq=False)
class PerLayerGate(Generic[A]):
    """x + norm(project(act(gate(x)) * input)), at the end of a layer."""

    gate: Linear
    projection: Linear
    norm: RmsNorm[A]
    act: Activation

    def __call__(self, ops: Ops[A], x: A, inputs: A) -> A:
        """`[R, H]` and this layer's `[R, d]` to `[R, H]`."""
        opened = ops.activate(ops.linear(x, self.gate), self.act) * inputs
        out: A = x + self.norm(ops, ops.linear(opened, self.projection))
        return out


def per_layer_inputs(config: GemmaConfig, weights: Weights[A], root: str, sizes: PerLayerSizes) -> PerLayerInputs[A]:
    """Of the modules under the root of the text model."""
    layers = len(config.layers)
    return PerLayerInputs(
        embedding=weights.embedding(f"{root}.embed_tokens_per_layer", shape=(sizes.vocabulary, layers * sizes.width)),
        projection=weights.linear(
            f"{root}.per_layer_model_projection", sizes=(layers * sizes.width,), columns=config.hidden, bias=False
        ),
        norm=rms_norm(weights, f"{root}.per_layer_projection_norm", sizes.width, config.eps),
        layers=layers,
        width=sizes.width,
        hidden=config.hidden,
    )


def per_layer_gate(config: GemmaConfig, weights: Weights[A], prefix: str, sizes: PerLayerSizes) -> PerLayerGate[A]:
    """Of the modules under the prefix of a layer."""
    return PerLayerGate(
        gate=weights.linear(f"{prefix}.per_layer_input_gate", sizes=(sizes.width,), columns=config.hidden, bias=False),
        projection=weights.linear(
            f"{prefix}.per_layer_projection", sizes=(config.hidden,), columns=sizes.width, bias=False
        ),
        norm=rms_norm(weights, f"{prefix}.post_per_layer_input_norm", config.hidden, config.eps),
        act=config.act,
    )
