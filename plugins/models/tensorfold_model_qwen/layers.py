"""One layer: a mixer, and a feed-forward that is dense or a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import Block, ResidualLayer, RmsNorm, gated_mlp, rms_norm
from tensorfold.compute.layers.gated_attention import gated_attention
from tensorfold.compute.layers.gated_delta import gated_delta
from tensorfold.compute.layers.moe import mixture
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Router
from tensorfold.contracts.weights import Weights
from tensorfold_model_qwen.config import LayerKind, MixtureSizes, QwenConfig

__all__ = ["LayerBuilder", "is_converted"]


def is_converted(config: QwenConfig, weights: Weights[A], root: str) -> bool:
    """Whether MLX's converter wrote these tensors: it turns the convolutions' axes and stores the norms as 1 + w."""
    for layer, kind in enumerate(config.kinds):
        name = f"{root}.layers.{layer}.linear_attn.conv1d.weight"
        if kind == "linear_attention" and weights.has(name):
            return config.delta.taps > 1 and weights.shape(name)[2:] == (1,)
    return False


@dataclass(frozen=True, slots=True, eq=False)
class LayerBuilder(Generic[A]):
    """Builds the layers of one checkpoint."""

    config: QwenConfig
    weights: Weights[A]
    zero_centred: bool
    """Norms are stored as w and applied as 1 + w."""

    def norm(self, prefix: str) -> RmsNorm[A]:
        """Of hidden rows."""
        return rms_norm(self.weights, prefix, self.config.hidden, self.config.eps, zero_centred=self.zero_centred)

    def layer(self, prefix: str, state: str, kind: LayerKind) -> Block[A]:
        """The layer of the modules under a prefix, whose states begin with a name."""
        return self.weights.block(
            ResidualLayer(
                mixer_norm=self.norm(f"{prefix}.input_layernorm"),
                mixer=self.weights.block(self._mixer(prefix, state, kind)),
                mlp_norm=self.norm(f"{prefix}.post_attention_layernorm"),
                mlp=self.weights.block(self._feed_forward(f"{prefix}.mlp")),
            )
        )

    def _mixer(self, prefix: str, state: str, kind: LayerKind) -> Block[A]:
        config = self.config
        if kind == "linear_attention":
            return gated_delta(
                self.weights,
                f"{prefix}.linear_attn",
                state,
                hidden=config.hidden,
                sizes=config.delta,
                eps=config.eps,
                act=config.act,
            )
        return gated_attention(
            self.weights,
            f"{prefix}.self_attn",
            f"{state}.kv",
            hidden=config.hidden,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            rope=config.rope,
            eps=config.eps,
            zero_centred=self.zero_centred,
            bias=config.attention_bias,
        )

    def _feed_forward(self, prefix: str) -> Block[A]:
        config = self.config
        if config.mixture is not None:
            return self._mixture(prefix, config.mixture)
        return gated_mlp(self.weights, prefix, hidden=config.hidden, width=config.width, act=config.act, bias=False)

    def _mixture(self, prefix: str, sizes: MixtureSizes) -> Block[A]:
        config, weights = self.config, self.weights
        converted = weights.has(f"{prefix}.switch_mlp.gate_proj.weight")  # MLX's name
        shared = gated_mlp(
            weights,
            f"{prefix}.shared_expert",
            hidden=config.hidden,
            width=sizes.shared_width,
            act=config.act,
            bias=False,
        )
        return mixture(
            weights,
            prefix,
            hidden=config.hidden,
            width=sizes.width,
            count=sizes.count,
            router=Router(k=sizes.chosen, score="softmax"),
            act=config.act,
            shared=weights.block(shared),
            shared_gate="shared_expert_gate",
            experts="switch_mlp" if converted else "experts",
        )
