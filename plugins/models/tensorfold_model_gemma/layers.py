"""One layer of either generation, built from its modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import Block, RmsNorm, attention, gated_mlp, rms_norm
from tensorfold.compute.layers.sandwich import SandwichLayer
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Router
from tensorfold.contracts.weights import Weights
from tensorfold_model_gemma.attention import NormedAttention
from tensorfold_model_gemma.experts import ExpertsLayer
from tensorfold_model_gemma.per_layer import PerLayerGate, per_layer_gate
from tensorfold_model_gemma.shape import GemmaConfig, LayerShape, MixtureSizes

__all__ = ["GemmaLayer", "LayerBuilder", "state_of"]


def state_of(layer: int) -> str:
    """The name of a layer's keys and values."""
    return f"layers.{layer}.kv"


@dataclass(frozen=True, slots=True, eq=False)
class GemmaLayer(Generic[A]):
    """A layer, and what Gemma 4 does after it."""

    body: Block[A]
    gate: PerLayerGate[A] | None
    scale: float
    """Multiplies the rows at the end."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerBuilder(Generic[A]):
    """Builds the layers of one checkpoint."""

    config: GemmaConfig
    weights: Weights[A]
    drafts: bool = False
    """The layers are a drafter's: none has keys, and each stands one position behind the last that it reads."""

    def norm(self, prefix: str, width: int | None = None) -> RmsNorm[A]:
        """Of hidden rows, or of rows this wide. Gemma 3 stores w and applies 1 + w, Gemma 4 does not."""
        config = self.config
        return rms_norm(self.weights, prefix, width or config.hidden, config.eps, zero_centred=config.generation == 3)

    def layer(self, prefix: str, number: int) -> GemmaLayer[A]:
        """The layer of the modules under a prefix."""
        config, weights, shape = self.config, self.weights, self.config.layers[number]
        mixer = weights.block(self._attention(f"{prefix}.self_attn", number, shape))
        mlp = gated_mlp(weights, f"{prefix}.mlp", hidden=config.hidden, width=shape.width, act=config.act, bias=False)
        body = (
            self._sandwich(prefix, mixer, weights.block(mlp))
            if config.mixture is None
            else self._with_experts(prefix, mixer, weights.block(mlp), config.mixture)
        )
        if config.generation == 3:
            return GemmaLayer(body, None, 1.0)
        gate = None if config.per_layer is None else per_layer_gate(config, weights, prefix, config.per_layer)
        return GemmaLayer(body, gate, weights.scalar(f"{prefix}.layer_scalar"))

    # ---- attention -------------------------------------------------------------------------------------------

    def _attention(self, prefix: str, number: int, shape: LayerShape) -> Block[A]:
        config = self.config
        if config.generation == 4:
            return self._normed_attention(prefix, number, shape)
        return attention(
            self.weights,
            prefix,
            state_of(number),
            hidden=config.hidden,
            heads=config.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            rope=shape.rope,
            norm_eps=config.eps,
            zero_centred=True,
            scale=config.scale,
            qkv_bias=config.attention_bias,
            out_bias=config.attention_bias,
        )

    def _normed_attention(self, prefix: str, number: int, shape: LayerShape) -> Block[A]:
        config, weights = self.config, self.weights
        queries, keys = config.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        own = shape.source == number and not self.drafts
        names = ("q_proj", "k_proj", "v_proj")[: 1 + own + (own and shape.has_values)]
        if not own:
            # Left over from training.
            weights.ignore(*(f"{prefix}.{name}.*" for name in ("k_proj", "v_proj", "k_norm", "v_norm")))
        return NormedAttention(
            state=state_of(shape.source),
            heads=config.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            qkv=weights.linear(
                *(f"{prefix}.{name}" for name in names),
                sizes=(queries, keys, keys)[: len(names)],
                columns=config.hidden,
                bias=config.attention_bias,
            ),
            out=weights.linear(f"{prefix}.o_proj", sizes=(config.hidden,), columns=queries, bias=config.attention_bias),
            scale=config.scale,
            rope=shape.rope,
            q_norm=self.norm(f"{prefix}.q_norm", shape.head_dim),
            k_norm=self.norm(f"{prefix}.k_norm", shape.head_dim) if own else None,
            has_values=shape.has_values,
            eps=config.eps,
            shift=int(self.drafts),
        )

    # ---- bodies ----------------------------------------------------------------------------------------------

    def _sandwich(self, prefix: str, mixer: Block[A], mlp: Block[A]) -> Block[A]:
        return self.weights.block(
            SandwichLayer(
                mixer_norm=self.norm(f"{prefix}.input_layernorm"),
                mixer=mixer,
                mixed_norm=self.norm(f"{prefix}.post_attention_layernorm"),
                mlp_norm=self.norm(f"{prefix}.pre_feedforward_layernorm"),
                mlp=mlp,
                out_norm=self.norm(f"{prefix}.post_feedforward_layernorm"),
            )
        )

    def _with_experts(self, prefix: str, mixer: Block[A], mlp: Block[A], sizes: MixtureSizes) -> Block[A]:
        config, weights = self.config, self.weights
        stacked = f"{prefix}.experts.switch_glu"  # MLX's name
        experts = stacked if weights.has(f"{stacked}.gate_proj.weight") else f"{prefix}.experts"
        factors = weights.floats(f"{prefix}.router.per_expert_scale", shape=(sizes.count,))
        scale: A = weights.vector(f"{prefix}.router.scale", shape=(config.hidden,)) * config.hidden**-0.5
        return weights.block(
            ExpertsLayer(
                mixer_norm=self.norm(f"{prefix}.input_layernorm"),
                mixer=mixer,
                mixed_norm=self.norm(f"{prefix}.post_attention_layernorm"),
                mlp_norm=self.norm(f"{prefix}.pre_feedforward_layernorm"),
                mlp=mlp,
                mlp_out_norm=self.norm(f"{prefix}.post_feedforward_layernorm_1"),
                router_norm=RmsNorm(scale, config.eps),
                gate=weights.linear(f"{prefix}.router.proj", sizes=(sizes.count,), columns=config.hidden, bias=False),
                router=Router(k=sizes.chosen, score="softmax", expert_scale=tuple(factors.tolist())),
                experts_norm=self.norm(f"{prefix}.pre_feedforward_layernorm_2"),
                experts=weights.experts(experts, sizes.count, act=config.act, shape=(sizes.width, config.hidden)),
                experts_out_norm=self.norm(f"{prefix}.post_feedforward_layernorm_2"),
                out_norm=self.norm(f"{prefix}.post_feedforward_layernorm"),
            )
        )
