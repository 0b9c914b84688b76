"""ACME's model: one layer of attention between an embedding and its transpose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from numpy.typing import NDArray

from tensorfold import hookimpl
from tensorfold.compute.declared import sampling_defaults, stop_ids
from tensorfold.compute.layers import Attention, RmsNorm, attention, rms_norm
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Geometry, GgufArchitecture
from tensorfold.contracts.handles import Embedding, Linear
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import KV
from tensorfold.contracts.step import Step
from tensorfold.contracts.weights import Weights

STATE = "memory"


@dataclass(frozen=True, slots=True, eq=False)
class AcmeDecoder(Generic[A]):
    """`x + attention(norm(x))`, once."""

    embedding: Embedding
    norm: RmsNorm[A]
    mixer: Attention[A]
    head: Linear

    @property
    def draft(self) -> None:
        """There is none."""
        return

    def prepare(self, step: Step[A]) -> Mapping[str, NDArray[Any]]:
        """Nothing."""
        return {}

    def forward(self, ops: Ops[A], step: Step[A]) -> A:
        """The only layer."""
        x = ops.embed(step.ids, self.embedding)
        seen: A = x + self.mixer(ops, step, self.norm(ops, x))
        return seen

    def logits(self, ops: Ops[A], hidden: A) -> A:
        """Against the embedding."""
        return ops.linear(hidden, self.head)


class AcmeFamily:
    """Claims `model_type` acme."""

    name = "acme"
    gguf: tuple[GgufArchitecture, ...] = ()

    def claim(self, config: ModelConfig) -> Claim | None:
        """By name alone."""
        if config.model_type != "acme":
            return None
        config.require("hidden_act", None)
        return Claim(100, "model_type acme")

    def geometry(self, config: ModelConfig) -> Geometry:
        """Two heads of half the width."""
        vocabulary, hidden = config.positive("vocab_size"), config.positive("hidden_size")
        return Geometry(
            vocabulary=vocabulary,
            hidden=hidden,
            layers=1,
            window=config.positive("max_position_embeddings"),
            states={STATE: KV(2, hidden // 2, hidden // 2)},
            stop_ids=stop_ids(config),
            sampling=sampling_defaults(config),
        )

    def build(self, config: ModelConfig, weights: Weights[A]) -> AcmeDecoder[A]:
        """Over these weights."""
        vocabulary, hidden = config.positive("vocab_size"), config.positive("hidden_size")
        embedding = weights.embedding("words", shape=(vocabulary, hidden))
        return AcmeDecoder(
            embedding=embedding,
            norm=rms_norm(weights, "norm", hidden, 1e-5),
            mixer=attention(
                weights,
                "layer",
                STATE,
                hidden=hidden,
                heads=2,
                kv_heads=2,
                head_dim=hidden // 2,
                rope=None,
                qkv_bias=False,
                out_bias=False,
            ),
            head=weights.head("words", embedding, shape=(vocabulary, hidden)),
        )

    def chat(self, config: ModelConfig) -> ChatFormat:
        """Plain text."""
        from tensorfold.chat.plain import PlainFormat

        return PlainFormat()


@hookimpl
def tensorfold_model_families() -> Iterable[AcmeFamily]:
    """One family."""
    yield AcmeFamily()
