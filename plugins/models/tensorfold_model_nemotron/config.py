"""A Nemotron-H config, read and checked; what this family does not run is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tensorfold.compute.foreign import refuse_foreign, refuse_rotation
from tensorfold.compute.layers.mamba import MambaSizes
from tensorfold.contracts.handles import Activation, Router
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_nemotron.limits import step_limits
from tensorfold_model_nemotron.pattern import BlockKind, draft_pattern, layer_pattern

__all__ = ["MODEL_TYPE", "MixtureSizes", "NemotronConfig", "nemotron_config"]

MODEL_TYPE: Final = "nemotron_h"

_ACTIVATIONS: Final[Mapping[str, Activation]] = MappingProxyType({"relu2": "relu2", "silu": "silu", "swish": "silu"})
"""`mlp_hidden_act` to the operation."""

_NOT_RUN: Final[Mapping[str, tuple[str | bool | int | None, ...]]] = MappingProxyType(
    {
        "mamba_hidden_act": (None, "silu", "swish"),
        "mamba_proj_bias": (None, False),
        "mamba_ssm_cache_dtype": (None, "float32"),
        "attention_bias": (None, False),
        "sliding_window": (None,),
        "tie_word_embeddings": (None, False),
        "n_shared_experts": (None, 1),
        "scoring_func": (None, "sigmoid"),
        "num_nextn_predict_layers": (None, 0, 1),
        "num_experts": (None, 0),
        "final_logit_softcapping": (None,),
    }
)
"""Keys that ask for other arithmetic than this family's, with the values at which they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSizes:
    """The experts of every mixture."""

    count: int
    router: Router
    width: int
    inner: int | None
    """The width at which they work; None: the hidden width."""
    shared_width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NemotronConfig:
    """What the decoder is built from."""

    vocabulary: int
    hidden: int
    kinds: tuple[BlockKind, ...]
    """Of each layer's only block."""
    draft_kinds: tuple[BlockKind, ...]
    """The same of the draft head; empty: there is none."""
    heads: int
    kv_heads: int
    head_dim: int
    mamba: MambaSizes
    step_limits: tuple[float, float]
    mixture: MixtureSizes | None
    """None: no layer has one."""
    width: int
    """Of a feed-forward block."""
    mlp_bias: bool
    act: Activation
    """Of feed-forwards and experts."""
    eps: float
    window: int


def nemotron_config(config: ModelConfig) -> NemotronConfig:
    """The config of a checkpoint.

    Raises:
        CheckpointUnsupported: naming the key that is missing, impossible, or asks for what is not run.
    """
    for key, allowed in _NOT_RUN.items():
        config.require(key, *allowed)
    refuse_foreign(config, own=(*_NOT_RUN, "n_group"))
    refuse_rotation(config)
    kinds = layer_pattern(config)
    draft = draft_pattern(config) if config.get(int, "num_nextn_predict_layers", 0) else ()
    heads = config.positive("num_attention_heads", 32)
    return NemotronConfig(
        vocabulary=config.positive("vocab_size"),
        hidden=config.positive("hidden_size"),
        kinds=kinds,
        draft_kinds=draft,
        heads=heads,
        kv_heads=_divisor(config, "num_key_value_heads", 8, "num_attention_heads", heads),
        head_dim=_head_dim(config),
        mamba=_mamba(config),
        step_limits=step_limits(config),
        mixture=_mixture(config) if "moe" in (*kinds, *draft) else None,
        width=config.positive("intermediate_size") if "mlp" in (*kinds, *draft) else 0,
        mlp_bias=config.get(bool, "mlp_bias", False),
        act=_activation(config),
        eps=config.get(float, "layer_norm_epsilon", 1e-5),
        window=config.positive("max_position_embeddings", 4096),
    )


def _divisor(config: ModelConfig, key: str, default: int, whole_key: str, whole: int) -> int:
    value = config.positive(key, default)
    if whole % value:
        raise CheckpointUnsupported(f"{config.where}: {whole_key} is {whole}, and must be a multiple of {key} {value}")
    return value


def _head_dim(config: ModelConfig) -> int:
    head_dim = config.positive("head_dim", 128)
    # The first checkpoints have the width under both names.
    config.require("attention_head_dim", None, head_dim)
    return head_dim


def _activation(config: ModelConfig) -> Activation:
    name = config.get(str, "mlp_hidden_act", "relu2")
    if name not in _ACTIVATIONS:
        raise CheckpointUnsupported(
            f"{config.where}: mlp_hidden_act is {name!r}, and only {', '.join(_ACTIVATIONS)} are run"
        )
    return _ACTIVATIONS[name]


def _mamba(config: ModelConfig) -> MambaSizes:
    def sized(key: str, old: str, default: int) -> int:
        return config.positive(old if config.values.get(old) is not None else key, default)

    heads = config.positive("mamba_num_heads", 128)
    groups = sized("n_groups", "mamba_n_groups", 8)
    if heads % groups:
        raise CheckpointUnsupported(
            f"{config.where}: mamba_num_heads is {heads}, and must be a multiple of n_groups {groups}"
        )
    conv_bias = "mamba_conv_bias" if config.values.get("mamba_conv_bias") is not None else "use_conv_bias"
    return MambaSizes(
        heads=heads,
        head_dim=config.positive("mamba_head_dim", 64),
        groups=groups,
        state=config.positive("ssm_state_size", 128),
        taps=sized("conv_kernel", "mamba_d_conv", 4),
        bias=config.get(bool, "use_bias", False),
        conv_bias=config.get(bool, conv_bias, True),
    )


def _mixture(config: ModelConfig) -> MixtureSizes:
    count = config.positive("n_routed_experts", 8)
    chosen = config.positive("num_experts_per_tok", 2)
    groups = _divisor(config, "n_group", 1, "n_routed_experts", count)
    kept = config.positive("topk_group", 1)
    if kept > groups or chosen > count // groups * kept:
        raise CheckpointUnsupported(
            f"{config.where}: num_experts_per_tok is {chosen} and topk_group {kept}, and {count} experts in {groups}"
            " groups (n_group) do not suffice for that"
        )
    return MixtureSizes(
        count=count,
        router=Router(
            k=chosen,
            score="sigmoid",
            renorm=config.get(bool, "norm_topk_prob", True),
            scale=config.get(float, "routed_scaling_factor", 1.0),
            groups=groups,
            keep_groups=kept,
        ),
        width=config.positive("moe_intermediate_size", 7688),
        inner=None if config.get(int, "moe_latent_size", None) is None else config.positive("moe_latent_size"),
        shared_width=config.positive("moe_shared_expert_intermediate_size", 7688),
    )
