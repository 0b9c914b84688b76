"""A GLM config, read and checked; what this family does not run is refused by name.

GLM-5.3 (`glm_moe_dsa`) keeps its keys at the top. GLM-5.3-Flash (`glm5_next`) has them in `text_config`, beside a
vision tower that is not run; its text part alone (`glm5_next_text`) has them at the top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tensorfold.compute.foreign import refuse_foreign, refuse_rotation
from tensorfold.compute.layers.kimi_delta import KimiShape
from tensorfold.compute.layers.latent_attention import LatentShape
from tensorfold.compute.layers.rope import context_window, rope_of
from tensorfold.compute.layers.sparse_index import IndexShape
from tensorfold.compute.nested import is_tied, text_config
from tensorfold.contracts.handles import Rope, Router
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import PAGE
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_glm.schedule import Layer, Mixer, flash_layers, glm_layers

__all__ = ["VARIANTS", "GlmConfig", "KimiConfig", "MixtureConfig", "StreamConfig", "Variant", "glm_config"]

Generation: TypeAlias = Literal["glm", "flash"]


@dataclass(frozen=True, slots=True)
class Variant:
    """One generation, and the classes that transformers and others name for it."""

    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    generation: Generation


VARIANTS: Final[tuple[Variant, ...]] = (
    Variant(("glm_moe_dsa",), ("GlmMoeDsaForCausalLM",), "glm"),
    Variant(("glm5_next", "glm5_next_text"), ("Glm5NextForConditionalGeneration", "Glm5NextForCausalLM"), "flash"),
)

_OWN: Final = ("scoring_func", "topk_method", "n_group")
"""Keys of features that this family reads."""
LATENT_EPS: Final = 1e-6
"""Of the norms of compressed query and latent in GLM-5.3, whatever `rms_norm_eps` says; Flash follows the config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureConfig:
    """The feed-forward block of a sparse layer."""

    experts: int
    width: int
    """Of one expert."""
    shared: int
    """Width of the expert that every row passes."""
    router: Router


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """Residual streams and their doubly stochastic mixing."""

    count: int
    iterations: int
    eps: float


@dataclass(frozen=True, slots=True)
class KimiConfig:
    """The linear layers."""

    shape: KimiShape
    floor: float | None
    """The lowest log decay of a row; None: there is no bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlmConfig:
    """What the decoder is built from."""

    vocabulary: int
    hidden: int
    eps: float
    window: int
    """The longest sequence."""
    tied: bool
    """The output head is the embedding."""
    layers: tuple[Layer, ...]
    attention: LatentShape
    latent_eps: float
    rope: Rope | None
    index: IndexShape
    width: int
    """Of the feed-forward block of a dense layer."""
    mixture: MixtureConfig
    limit: float | None
    """Bounds what goes into the products of the feed-forward blocks."""
    streams: StreamConfig | None
    """Flash alone, and so its linear layers."""
    kimi: KimiConfig | None
    draft: bool
    """The checkpoint was made with a draft head, as the layer behind the last."""

    @property
    def draft_layer(self) -> Layer:
        """The draft head's own layer."""
        return Layer(Mixer.INDEXED, sparse=True)


def glm_config(config: ModelConfig, variant: Variant) -> GlmConfig:
    """The config of a checkpoint of this variant.

    Raises:
        CheckpointUnsupported: naming the key that is missing, impossible, or asks for what is not run.
    """
    match variant.generation:
        case "glm":
            return _glm(config)
        case "flash":
            return _flash(text_config(config), tied=is_tied(config, default=False))


# ---- GLM-5.3 -----------------------------------------------------------------------------------------------


def _glm(config: ModelConfig) -> GlmConfig:
    draft = _draft(config)
    refuse_foreign(config, own=_OWN)
    config.require("rope_interleave", None, True)
    config.require("indexer_rope_interleave", None, True)
    config.require("mlp_bias", None, False)
    config.require("swiglu_limit", None)
    config.require("index_kpool", None, 1)
    attention = _attention(config, rotary=config.positive("qk_rope_head_dim"))
    return GlmConfig(
        vocabulary=config.positive("vocab_size"),
        hidden=config.positive("hidden_size"),
        eps=config.get(float, "rms_norm_eps", 1e-5),
        window=context_window(config),
        tied=is_tied(config, default=False),
        layers=glm_layers(config),
        attention=attention,
        latent_eps=LATENT_EPS,
        rope=_rope(config, attention.rope),
        index=_index(config, pool=1, rotary=attention.rope),
        width=config.positive("intermediate_size"),
        mixture=_mixture(config),
        limit=None,
        streams=None,
        kimi=None,
        draft=draft,
    )


def _rope(config: ModelConfig, width: int) -> Rope:
    config.require("rope_scaling", None)
    section = config.section("rope_parameters")
    if section is not None:
        # Other rules would also change the attention's scale.
        section.require("rope_type", None, "default")
        section.require("partial_rotary_factor", None, 1)
    if width % 2:
        raise CheckpointUnsupported(
            f"{config.where}: {config.path}qk_rope_head_dim is {width}, and must be even to be rotated in pairs"
        )
    return rope_of(config, width, interleaved=True)


# ---- GLM-5.3-Flash -----------------------------------------------------------------------------------------


def _flash(config: ModelConfig, *, tied: bool) -> GlmConfig:
    draft = _draft(config)
    refuse_foreign(config, own=_OWN)
    refuse_rotation(config)
    config.require("qk_rope_head_dim", 0)
    config.require("mhc", None, True)
    config.require("index_kpool_compress", None, True)
    config.require("index_kpool_always_select_tail", None, True)
    pool = config.positive("index_kpool")
    if pool < 2 or PAGE % pool:
        raise CheckpointUnsupported(
            f"{config.where}: {config.path}index_kpool is {pool}, and must be from 2 to {PAGE} and divide {PAGE}"
        )
    eps = config.get(float, "rms_norm_eps", 1e-5)
    return GlmConfig(
        vocabulary=config.positive("vocab_size"),
        hidden=config.positive("hidden_size"),
        eps=eps,
        window=context_window(config),
        tied=tied,
        layers=flash_layers(config),
        attention=_attention(config, rotary=0),
        latent_eps=eps,
        rope=None,
        index=_index(config, pool=pool, rotary=0),
        width=config.positive("intermediate_size"),
        mixture=_mixture(config),
        limit=config.get(float, "swiglu_limit", 10.0),
        streams=StreamConfig(
            count=config.positive("hc_mult", 4),
            iterations=config.positive("hc_sinkhorn_iters", 20),
            eps=config.get(float, "hc_eps", 1e-6),
        ),
        kimi=_kimi(config),
        draft=draft,
    )


def _kimi(config: ModelConfig) -> KimiConfig:
    """From keys of their own or, before them, from `linear_attn_config` as Kimi's checkpoints spell it."""
    shape = KimiShape(
        heads=config.positive("linear_num_heads", 64),
        dim=config.positive("linear_head_dim", 128),
        taps=config.positive("linear_conv_kernel_dim", 4),
    )
    floor = config.get(float, "linear_lower_bound", None if "linear_lower_bound" in config.values else -5.0)
    section = config.section("linear_attn_config")
    if section is not None:
        shape = KimiShape(
            heads=section.positive("num_heads", shape.heads),
            dim=section.positive("head_dim", shape.dim),
            taps=section.positive("short_conv_kernel_size", shape.taps),
        )
        if "gate_lower_bound" in section.values:
            floor = section.get(float, "gate_lower_bound", None)
        if floor is None and section.get(bool, "safe_gate", True):
            floor = -5.0
    if floor is not None and floor >= 0:
        raise CheckpointUnsupported(f"{config.where}: the lower bound of the log decay is {floor}, and must be below 0")
    return KimiConfig(shape, floor)


# ---- both --------------------------------------------------------------------------------------------------


def _attention(config: ModelConfig, *, rotary: int) -> LatentShape:
    config.require("attention_bias", None, False)
    config.require("hidden_act", None, "silu")
    shape = LatentShape(
        heads=config.positive("num_attention_heads"),
        query_rank=config.positive("q_lora_rank"),
        latent=config.positive("kv_lora_rank"),
        nope=config.positive("qk_nope_head_dim"),
        rope=rotary,
        value=config.positive("v_head_dim"),
    )
    config.require("num_key_value_heads", None, shape.heads)
    config.require("qk_head_dim", None, shape.nope + shape.rope)
    return shape


def _index(config: ModelConfig, *, pool: int, rotary: int) -> IndexShape:
    shape = IndexShape(
        heads=config.positive("index_n_heads"),
        dim=config.positive("index_head_dim"),
        budget=config.positive("index_topk"),
        pool=pool,
    )
    if shape.budget % pool:
        raise CheckpointUnsupported(
            f"{config.where}: {config.path}index_topk is {shape.budget}, and must be a multiple of index_kpool {pool}"
        )
    if shape.dim < rotary:
        raise CheckpointUnsupported(
            f"{config.where}: {config.path}index_head_dim is {shape.dim}, and qk_rope_head_dim {rotary} must fit in it"
        )
    return shape


def _mixture(config: ModelConfig) -> MixtureConfig:
    config.require("scoring_func", None, "sigmoid")
    config.require("topk_method", None, "noaux_tc")
    experts, groups = config.positive("n_routed_experts"), config.positive("n_group", 1)
    router = Router(
        k=config.positive("num_experts_per_tok"),
        score="sigmoid",
        renorm=config.get(bool, "norm_topk_prob", True),
        scale=config.get(float, "routed_scaling_factor", 1.0),
        groups=groups,
        keep_groups=config.positive("topk_group", 1),
    )
    if experts % groups:
        raise CheckpointUnsupported(
            f"{config.where}: {config.path}n_routed_experts is {experts}, and must be a multiple of n_group {groups}"
        )
    if router.k > experts:
        raise CheckpointUnsupported(
            f"{config.where}: {config.path}num_experts_per_tok is {router.k}, and n_routed_experts is {experts}"
        )
    width = config.positive("moe_intermediate_size")
    return MixtureConfig(
        experts=experts, width=width, shared=width * config.positive("n_shared_experts", 1), router=router
    )


def _draft(config: ModelConfig) -> bool:
    config.require("num_nextn_predict_layers", None, 0, 1)
    return config.get(int, "num_nextn_predict_layers", 0) == 1
