"""A tiny family that uses every kind of state, with a draft head, for tests of everything between family and backend.

Five layers of hidden width 32: full attention, windowed attention, sparse latent attention over pooled index keys, a
gated delta net and a Mamba-2 mixer, two of them followed by a mixture of experts; a hashed bigram embedding made on the
host; a draft head with pages and a fixed-size state of its own. It is no useful model, and every value in it matters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.declared import sampling_defaults, stop_ids
from tensorfold.compute.layers import Attention, Block, ResidualLayer, RmsNorm, attention, gated_mlp, rms_norm
from tensorfold.compute.loading import load_decoder
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Decoder, Geometry, GgufArchitecture
from tensorfold.contracts.handles import Embedding, Linear, Rope
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV, StateSpec
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Packer, Weights
from tensorfold.testing.fake_mixers import (
    delta_net,
    delta_states,
    delta_tensors,
    mixture,
    mixture_tensors,
    sparse_latent,
    sparse_states,
    sparse_tensors,
    state_space,
    state_space_states,
    state_space_tensors,
)
from tensorfold.testing.fake_sizes import EPS, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, WIDTH, WINDOW
from tensorfold.testing.random_tensors import RandomTensors

__all__ = ["FakeDecoder", "FakeDraftHead", "FakeFamily", "fake_config", "fake_decoder", "fake_tensors"]

MODEL_TYPE: Final = "tensorfold_fake"
BIGRAMS: Final = 61
"""Rows of the hashed embedding."""
ROPE: Final = Rope(tuple(float(1000.0 ** (-pair / (HEAD_DIM // 2))) for pair in range(HEAD_DIM // 2)))


@dataclass(frozen=True, slots=True, eq=False)
class FakeDecoder(Generic[A]):
    """The decoder."""

    embedding: Embedding
    bigrams: Embedding
    layers: tuple[Block[A], ...]
    norm: RmsNorm[A]
    head: Linear
    draft: FakeDraftHead[A]

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """`bigrams [R, 2]`: hashes of each row's token with the one and the two before it."""
        before = step.history(2) + 1
        tokens = step.host_ids.astype(np.int64)
        near = (tokens * 31 + before[:, 0] * 17) % BIGRAMS
        far = (near * 7 + before[:, 1] * 13) % BIGRAMS
        return {"bigrams": np.stack([near, far], axis=1).astype(np.int32)}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """The rows after the last norm."""
        hashed = ops.sum(ops.embed(step.inputs["bigrams"], self.bigrams), 1)
        x: A = ops.embed(step.ids, self.embedding) + hashed * 0.5
        for layer in self.layers:
            x = layer(ops, step, x)
        return self.norm(ops, x)

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H]` to `[N, V]`, spread far enough that a few tokens are likely."""
        return ops.linear(hidden * 2.0, self.head)


@dataclass(frozen=True, slots=True, eq=False)
class FakeDraftHead(Generic[A]):
    """A decoder of the group `draft`: the target's row p and token p + 1 give the row from which token p + 2 comes."""

    embedding: Embedding
    join: Linear
    layer: Block[A]
    delta: Block[A] | None
    """None: its states are pages alone, which can go back to any length."""
    norm: RmsNorm[A]
    head: Linear

    @property
    def draft(self) -> None:
        """A draft head has none."""
        return

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Nothing is computed on the host."""
        return {}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """Its own rows, which stand for the target's when it drafts further."""
        joined = ops.concat([ops.embed(step.ids, self.embedding), step.inputs["hidden"]])
        x = self.layer(ops, step, ops.linear(joined, self.join))
        mixed: A = x if self.delta is None else x + self.delta(ops, step, x)
        return self.norm(ops, mixed)

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """`[N, H]` to `[N, V]`."""
        return ops.linear(hidden * 2.0, self.head)


class FakeFamily:
    """The family of the fake checkpoint."""

    @property
    def name(self) -> str:
        """Of the family."""
        return "fake"

    @property
    def gguf(self) -> tuple[GgufArchitecture, ...]:
        """None."""
        return ()

    def claim(self, config: ModelConfig) -> Claim | None:
        """By model type."""
        return Claim(100, f"model_type {MODEL_TYPE}") if config.model_type == MODEL_TYPE else None

    def geometry(self, config: ModelConfig) -> Geometry:
        """All states of main and draft."""
        return Geometry(
            vocabulary=config.positive("vocab_size"),
            hidden=HIDDEN,
            layers=5,
            window=config.positive("max_position_embeddings"),
            states=_states(config),
            stop_ids=stop_ids(config),
            sampling=sampling_defaults(config),
        )

    def build(self, config: ModelConfig, weights: Weights[A]) -> FakeDecoder[A]:
        """The decoder and its draft head, which shares the embedding and the output head."""
        table = (config.positive("vocab_size"), HIDDEN)
        embedding = weights.embedding("embed", shape=table)
        head = weights.head("head", None, shape=table)
        mixers: tuple[Block[A], ...] = (
            _attention(weights, "layers.0.attn", "0.kv"),
            _attention(weights, "layers.1.attn", "1.kv"),
            sparse_latent(weights, "layers.2.sparse", "2", ROPE),
            delta_net(weights, "layers.3.delta", "3"),
            state_space(weights, "layers.4.ssd", "4"),
        )
        return FakeDecoder(
            embedding=embedding,
            bigrams=weights.embedding("bigrams", shape=(BIGRAMS, HIDDEN)),
            layers=tuple(_layer(weights, f"layers.{number}", number, mixer) for number, mixer in enumerate(mixers)),
            norm=rms_norm(weights, "norm", HIDDEN, EPS),
            head=head,
            draft=FakeDraftHead(
                embedding=embedding,
                join=weights.linear("draft.join", sizes=(HIDDEN,), columns=2 * HIDDEN, bias=False),
                layer=_layer(weights, "draft", 0, _attention(weights, "draft.attn", "draft.kv")),
                delta=delta_net(weights, "draft.delta", "draft") if _recurrent(config) else None,
                norm=rms_norm(weights, "draft.norm", HIDDEN, EPS),
                head=head,
            ),
        )

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Plain text."""
        from tensorfold.chat.plain import PlainFormat

        return PlainFormat()


def fake_config(
    *, vocabulary: int = 96, window: int = 512, stop_ids: tuple[int, ...] = (1,), recurrent_draft: bool = True
) -> ModelConfig:
    """The config of a fake checkpoint; `recurrent_draft`: its draft head has a fixed-size state beside its pages."""
    values = {
        "model_type": MODEL_TYPE,
        "vocab_size": vocabulary,
        "max_position_embeddings": window,
        "eos_token_id": list(stop_ids),
        "recurrent_draft": recurrent_draft,
    }
    return ModelConfig(values, {}, "fake config.json")


def fake_decoder(packer: Packer[A], config: ModelConfig | None = None, *, seed: int = 0) -> Decoder[A]:
    """The fake family's decoder, with the weights of this seed; its geometry is `FakeFamily().geometry(config)`."""
    config = config or fake_config()
    return load_decoder(FakeFamily(), config, RandomTensors(fake_tensors(config), seed), packer)


def fake_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of a fake checkpoint, and its shape."""
    vocabulary = config.positive("vocab_size")
    shapes: dict[str, tuple[int, ...]] = {
        "embed.weight": (vocabulary, HIDDEN),
        "head.weight": (vocabulary, HIDDEN),
        "bigrams.weight": (BIGRAMS, HIDDEN),
        "norm.weight": (HIDDEN,),
        "draft.join.weight": (HIDDEN, 2 * HIDDEN),
        "draft.norm.weight": (HIDDEN,),
        **(delta_tensors("draft.delta") if _recurrent(config) else {}),
        **sparse_tensors("layers.2.sparse"),
        **delta_tensors("layers.3.delta"),
        **state_space_tensors("layers.4.ssd"),
    }
    for prefix in ("layers.0", "layers.1", "draft"):
        queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
        shapes |= {
            f"{prefix}.attn.q_proj.weight": (queries, HIDDEN),
            f"{prefix}.attn.k_proj.weight": (keys, HIDDEN),
            f"{prefix}.attn.v_proj.weight": (keys, HIDDEN),
            f"{prefix}.attn.v_proj.bias": (keys,),
            f"{prefix}.attn.o_proj.weight": (HIDDEN, queries),
            f"{prefix}.attn.q_norm.weight": (HEAD_DIM,),
            f"{prefix}.attn.k_norm.weight": (HEAD_DIM,),
        }
    for number, prefix in enumerate((*(f"layers.{layer}" for layer in range(5)), "draft")):
        shapes |= {f"{prefix}.mixer_norm.weight": (HIDDEN,), f"{prefix}.mlp_norm.weight": (HIDDEN,)}
        if number in (1, 2):
            shapes |= mixture_tensors(f"{prefix}.mlp")
        else:
            shapes |= {
                f"{prefix}.mlp.gate_proj.weight": (WIDTH, HIDDEN),
                f"{prefix}.mlp.up_proj.weight": (WIDTH, HIDDEN),
                f"{prefix}.mlp.down_proj.weight": (HIDDEN, WIDTH),
            }
    return shapes


def _recurrent(config: ModelConfig) -> bool:
    return config.get(bool, "recurrent_draft", True)


def _states(config: ModelConfig) -> dict[str, StateSpec]:
    return {
        "0.kv": KV(KV_HEADS, HEAD_DIM, HEAD_DIM),
        "1.kv": KV(KV_HEADS, HEAD_DIM, HEAD_DIM, window=WINDOW),
        **sparse_states("2"),
        **delta_states("3", "main"),
        **state_space_states("4"),
        "draft.kv": KV(KV_HEADS, HEAD_DIM, HEAD_DIM, group="draft"),
        **(delta_states("draft", "draft") if _recurrent(config) else {}),
    }


def _attention(weights: Weights[A], prefix: str, state: str) -> Attention[A]:
    return attention(
        weights,
        prefix,
        state,
        hidden=HIDDEN,
        heads=HEADS,
        kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        rope=ROPE,
        norm_eps=EPS,
        softcap=20.0,
    )


def _layer(weights: Weights[A], prefix: str, number: int, mixer: Block[A]) -> Block[A]:
    mlp: Block[A] = (
        mixture(weights, f"{prefix}.mlp")
        if number in (1, 2)
        else gated_mlp(weights, f"{prefix}.mlp", hidden=HIDDEN, width=WIDTH, act="gelu", bias=False)
    )
    return weights.block(
        ResidualLayer(
            mixer_norm=rms_norm(weights, f"{prefix}.mixer_norm", HIDDEN, EPS),
            mixer=weights.block(mixer),
            mlp_norm=rms_norm(weights, f"{prefix}.mlp_norm", HIDDEN, EPS),
            mlp=weights.block(mlp),
        )
    )
