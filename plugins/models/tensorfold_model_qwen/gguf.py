"""How GGUF files of `qwen35` and `qwen35moe` read as Hugging Face checkpoints.

Names and metadata keys are those of llama.cpp's converter. It stores norms as 1 + w, A_log as -exp(A_log), and the value
heads of a gated delta net tiled over the key heads (first of each key head, then the second of each) where the model has
them grouped by key head. The draft head lies as one more block behind the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.gguf import GgufArchitecture, GgufFacts, GgufTensor
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["ARCHITECTURES"]

_CONFIG: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vocab_size": "{arch}.vocab_size",
        "max_position_embeddings": "{arch}.context_length",
        "hidden_size": "{arch}.embedding_length",
        "intermediate_size": "{arch}.feed_forward_length",
        "num_attention_heads": "{arch}.attention.head_count",
        "num_key_value_heads": "{arch}.attention.head_count_kv",
        "head_dim": "{arch}.attention.key_length",
        "rms_norm_eps": "{arch}.attention.layer_norm_rms_epsilon",
        "full_attention_interval": "{arch}.full_attention_interval",
        "linear_conv_kernel_dim": "{arch}.ssm.conv_kernel",
        "linear_key_head_dim": "{arch}.ssm.state_size",
        "linear_num_key_heads": "{arch}.ssm.group_count",
        "linear_num_value_heads": "{arch}.ssm.time_step_rank",
        "num_experts": "{arch}.expert_count",
        "num_experts_per_tok": "{arch}.expert_used_count",
        "moe_intermediate_size": "{arch}.expert_feed_forward_length",
        "shared_expert_intermediate_size": "{arch}.expert_shared_feed_forward_length",
    }
)


def _grouped(config: ModelConfig, width: int) -> NDArray[np.intp]:
    """Value heads of so many rows each, back in the order of their key heads."""
    heads, groups = config.positive("linear_num_value_heads"), config.positive("linear_num_key_heads")
    return np.arange(heads * width).reshape(heads // groups, groups, width).swapaxes(0, 1).reshape(-1)


def _values(config: ModelConfig, size: int) -> NDArray[np.intp]:
    del size
    return _grouped(config, config.positive("linear_value_head_dim"))


def _heads(config: ModelConfig, size: int) -> NDArray[np.intp]:
    del size
    return _grouped(config, 1)


def _behind_keys(config: ModelConfig, size: int) -> NDArray[np.intp]:
    """Queries and keys come first, and are as they were."""
    keys = 2 * config.positive("linear_num_key_heads") * config.positive("linear_key_head_dim")
    return np.concatenate([np.arange(keys), keys + _values(config, size)])


def _layer(name: str, stored: str) -> dict[str, GgufTensor]:
    """What lies under `stored` belongs under `name`."""
    matrices = {
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_output.weight": "self_attn.o_proj.weight",
        "ffn_gate.weight": "mlp.gate_proj.weight",
        "ffn_up.weight": "mlp.up_proj.weight",
        "ffn_down.weight": "mlp.down_proj.weight",
        "ffn_gate_inp.weight": "mlp.gate.weight",
        "ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight",
        "ffn_gate_exps.weight": "mlp.experts.gate_proj.weight",
        "ffn_up_exps.weight": "mlp.experts.up_proj.weight",
        "ffn_gate_up_exps.weight": "mlp.experts.gate_up_proj",
        "ffn_down_exps.weight": "mlp.experts.down_proj.weight",
        "ffn_gate_shexp.weight": "mlp.shared_expert.gate_proj.weight",
        "ffn_up_shexp.weight": "mlp.shared_expert.up_proj.weight",
        "ffn_down_shexp.weight": "mlp.shared_expert.down_proj.weight",
        "ssm_norm.weight": "linear_attn.norm.weight",
    }
    norms = {
        "attn_norm.weight": "input_layernorm.weight",
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "attn_q_norm.weight": "self_attn.q_norm.weight",
        "attn_k_norm.weight": "self_attn.k_norm.weight",
    }
    delta = f"{name}.linear_attn"
    return {
        **{f"{stored}.{key}": GgufTensor(f"{name}.{own}") for key, own in matrices.items()},
        **{f"{stored}.{key}": GgufTensor(f"{name}.{own}", add=-1.0) for key, own in norms.items()},
        f"{stored}.attn_qkv.weight": GgufTensor(f"{delta}.in_proj_qkv.weight", rows=_behind_keys),
        f"{stored}.attn_gate.weight": GgufTensor(f"{delta}.in_proj_z.weight", rows=_values),
        f"{stored}.ssm_beta.weight": GgufTensor(f"{delta}.in_proj_b.weight", rows=_heads),
        f"{stored}.ssm_alpha.weight": GgufTensor(f"{delta}.in_proj_a.weight", rows=_heads),
        f"{stored}.ssm_a": GgufTensor(f"{delta}.A_log", rows=_heads, log=True),
        f"{stored}.ssm_dt.bias": GgufTensor(f"{delta}.dt_bias", rows=_heads),
        f"{stored}.ssm_conv1d.weight": GgufTensor(f"{delta}.conv1d.weight", rows=_behind_keys, conv=True),
        f"{stored}.ssm_out.weight": GgufTensor(f"{delta}.out_proj.weight", columns=_values),
    }


_DRAFT: Final[Mapping[str, tuple[str, float]]] = MappingProxyType(
    {
        "nextn.eh_proj.weight": ("mtp.fc.weight", 0.0),
        "nextn.enorm.weight": ("mtp.pre_fc_norm_embedding.weight", -1.0),
        "nextn.hnorm.weight": ("mtp.pre_fc_norm_hidden.weight", -1.0),
        "nextn.shared_head_norm.weight": ("mtp.norm.weight", -1.0),
    }
)
"""What joins and ends the draft head, and what undoes its norms."""


def _adapted(rules: GgufArchitecture, facts: GgufFacts) -> GgufArchitecture:
    """With the widths that the metadata has as products, and the draft head's block."""
    heads, inner = facts.get("{arch}.ssm.time_step_rank"), facts.get("{arch}.ssm.inner_size")
    blocks, drafts = facts.get("{arch}.block_count"), facts.get("{arch}.nextn_predict_layers") or 0
    head_dim, rotated = facts.get("{arch}.attention.key_length"), facts.get("{arch}.rope.dimension_count")
    if not all(isinstance(value, int) and value > 0 for value in (heads, inner, blocks, head_dim, rotated)):
        raise CheckpointUnsupported(
            f"a {rules.architecture} file must say ssm.time_step_rank, ssm.inner_size, block_count,"
            " attention.key_length and rope.dimension_count"
        )
    if drafts not in (0, 1):
        raise CheckpointUnsupported(f"nextn_predict_layers is {drafts}, and only 0 and 1 are run")
    rope: dict[str, Any] = {"rope_type": "default", "partial_rotary_factor": rotated / head_dim}
    if (base := facts.get("{arch}.rope.freq_base")) is not None:
        rope["rope_theta"] = base
    sections: Any = facts.get("{arch}.rope.dimension_sections")
    if isinstance(sections, list):
        # A fourth one is always 0.
        rope["mrope_section"] = cast("list[Any]", sections)[:3]
    fixed = {
        **rules.fixed,
        "num_hidden_layers": blocks - drafts,
        "linear_value_head_dim": inner // heads,
        "rope_parameters": rope,
        "mtp_num_hidden_layers": drafts,
    }
    behind = f"blk.{blocks - 1}"
    tensors = dict(rules.tensors)
    if drafts:
        head = {f"{behind}.{stored}": GgufTensor(name, add=add) for stored, (name, add) in _DRAFT.items()}
        # The first rule that fits a name counts.
        tensors = {**_layer("mtp.layers.0", behind), **head, **tensors}
    return replace(rules, fixed=fixed, tensors=tensors)


def _architecture(name: str, model_type: str) -> GgufArchitecture:
    return GgufArchitecture(
        architecture=name,
        config=_CONFIG,
        tensors={
            "token_embd.weight": GgufTensor("model.embed_tokens.weight"),
            "output.weight": GgufTensor("lm_head.weight"),
            "output_norm.weight": GgufTensor("model.norm.weight", add=-1.0),
            **_layer("model.layers.{i}", "blk.{i}"),
        },
        fixed={"model_type": model_type},
        adapt=_adapted,
    )


ARCHITECTURES: Final[tuple[GgufArchitecture, ...]] = (
    _architecture("qwen35", "qwen3_5_text"),
    _architecture("qwen35moe", "qwen3_5_moe_text"),
)
