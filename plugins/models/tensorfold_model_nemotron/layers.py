"""One layer: a norm and a block, which is a Mamba mixer, attention, a feed-forward or a mixture of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from tensorfold.compute.layers import Block, RmsNorm, attention, rms_norm
from tensorfold.compute.layers.mamba import mamba
from tensorfold.compute.layers.plain_mlp import plain_mlp
from tensorfold.compute.layers.single import SingleLayer
from tensorfold.contracts.arrays import A
from tensorfold.contracts.weights import Weights
from tensorfold_model_nemotron.config import NemotronConfig
from tensorfold_model_nemotron.mixture import mixture
from tensorfold_model_nemotron.pattern import BlockKind

__all__ = ["LayerBuilder"]


@dataclass(frozen=True, slots=True, eq=False)
class LayerBuilder(Generic[A]):
    """Builds the layers of one checkpoint."""

    config: NemotronConfig
    weights: Weights[A]

    def norm(self, prefix: str) -> RmsNorm[A]:
        """Of hidden rows."""
        return rms_norm(self.weights, prefix, self.config.hidden, self.config.eps)

    def layer(self, prefix: str, state: str, kind: BlockKind) -> Block[A]:
        """The layer of the modules under a prefix, whose states begin with a name."""
        block = self.weights.block(self._block(f"{prefix}.mixer", state, kind))
        return self.weights.block(SingleLayer(self.norm(f"{prefix}.norm"), block))

    def _block(self, prefix: str, state: str, kind: BlockKind) -> Block[A]:
        config, weights = self.config, self.weights
        match kind:
            case "mamba":
                return mamba(
                    weights,
                    prefix,
                    state,
                    hidden=config.hidden,
                    sizes=config.mamba,
                    eps=config.eps,
                    act="silu",
                    step_limits=config.step_limits,
                )
            case "attention":
                return attention(
                    weights,
                    prefix,
                    f"{state}.kv",
                    hidden=config.hidden,
                    heads=config.heads,
                    kv_heads=config.kv_heads,
                    head_dim=config.head_dim,
                    rope=None,
                    qkv_bias=False,
                    out_bias=False,
                )
            case "mlp":
                return plain_mlp(
                    weights, prefix, hidden=config.hidden, width=config.width, act=config.act, bias=config.mlp_bias
                )
            case "moe":
                return mixture(config, weights, prefix)
