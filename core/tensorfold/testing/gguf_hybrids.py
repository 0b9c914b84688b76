"""Tensors and metadata of hybrid models as llama.cpp's converter writes them, made by its description for tests.

Each function takes a Hugging Face config and its tensors, and gives metadata under the architecture, and GGUF tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.testing.gguf_writer import GgufItem

__all__ = ["Arrays", "Converted", "convert_gemma", "convert_nemotron", "convert_qwen"]

Floats: TypeAlias = NDArray[np.float32]
Arrays: TypeAlias = dict[str, Floats]
Converted: TypeAlias = tuple[dict[str, GgufItem], Arrays]
"""Metadata under an architecture, and tensors."""


def stacked(arrays: Arrays, prefix: str, parts: Mapping[str, str]) -> Arrays:
    """The experts under a prefix as one tensor for each of their matrices."""
    found: Arrays = {}
    for own, stored in parts.items():
        each: list[Floats] = []
        while (name := f"{prefix}.{len(each)}.{own}.weight") in arrays:
            each.append(arrays[name])
        if each:
            found[stored] = np.stack(each)
    return found


def tiled(values: Floats, keys: int, heads: int, width: int, axis: int = 0) -> Floats:
    """Value heads: the first of every key head, then the second of every one."""
    each = heads // keys
    order = [(key * each + number) * width + at for number in range(each) for key in range(keys) for at in range(width)]
    return values.take(order, axis)


def common(config: Mapping[str, Any], eps: float) -> dict[str, GgufItem]:
    return {
        "vocab_size": config["vocab_size"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.layer_norm_rms_epsilon": eps,
    }


# ---- Qwen ------------------------------------------------------------------------------------------------------------

_QWEN_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "mlp.gate": "ffn_gate_inp",
        "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
        "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
        "mlp.shared_expert.up_proj": "ffn_up_shexp",
        "mlp.shared_expert.down_proj": "ffn_down_shexp",
        "linear_attn.norm": "ssm_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
    }
)


def convert_qwen(config: Mapping[str, Any], arrays: Arrays) -> Converted:
    """With the draft head behind the last layer."""
    layers = config["num_hidden_layers"]
    tensors: Arrays = {
        "token_embd.weight": arrays["model.embed_tokens.weight"],
        "output.weight": arrays["lm_head.weight"],
        "output_norm.weight": arrays["model.norm.weight"] + 1,
    }
    for layer in range(layers):
        tensors |= _qwen_block(config, arrays, f"model.layers.{layer}", f"blk.{layer}")
    if config["mtp_num_hidden_layers"]:
        behind = f"blk.{layers}"
        tensors |= _qwen_block(config, arrays, "mtp.layers.0", behind)
        tensors |= {
            f"{behind}.nextn.eh_proj.weight": arrays["mtp.fc.weight"],
            f"{behind}.nextn.enorm.weight": arrays["mtp.pre_fc_norm_embedding.weight"] + 1,
            f"{behind}.nextn.hnorm.weight": arrays["mtp.pre_fc_norm_hidden.weight"] + 1,
            f"{behind}.nextn.shared_head_norm.weight": arrays["mtp.norm.weight"] + 1,
        }
    return _qwen_metadata(config), tensors


def _qwen_metadata(config: Mapping[str, Any]) -> dict[str, GgufItem]:
    layers, drafts = config["num_hidden_layers"], config["mtp_num_hidden_layers"]
    heads = config["linear_num_value_heads"]
    metadata: dict[str, GgufItem] = {
        **common(config, 1e-6),
        "block_count": layers + drafts,
        "nextn_predict_layers": drafts,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "full_attention_interval": 2,
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": heads,
        "ssm.inner_size": heads * config["linear_value_head_dim"],
        "rope.freq_base": config["rope_parameters"]["rope_theta"],
        "rope.dimension_count": config["head_dim"] // 2,
        "rope.dimension_sections": np.array([2, 1, 1, 0], np.int32),
    }
    if "num_experts" in config:
        metadata |= {
            "expert_count": config["num_experts"],
            "expert_used_count": config["num_experts_per_tok"],
            "expert_feed_forward_length": config["moe_intermediate_size"],
            "expert_shared_feed_forward_length": config["shared_expert_intermediate_size"],
        }
    else:
        metadata["feed_forward_length"] = config["intermediate_size"]
    return metadata


def _qwen_block(config: Mapping[str, Any], arrays: Arrays, prefix: str, stored: str) -> Arrays:
    """One layer. All norms but that of the delta net are stored around 0, and written around 1."""
    found: Arrays = {}
    for own, name in _QWEN_MODULES.items():
        values = arrays.get(f"{prefix}.{own}.weight")
        if values is not None:
            raised = own.endswith("norm") and own != "linear_attn.norm"
            found[f"{stored}.{name}.weight"] = values + np.float32(1) if raised else values
    parts = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}
    experts = stacked(arrays, f"{prefix}.mlp.experts", parts)
    found |= {f"{stored}.{name}.weight": values for name, values in experts.items()}
    if f"{prefix}.linear_attn.A_log" in arrays:
        found |= _qwen_delta(config, arrays, f"{prefix}.linear_attn", stored)
    return found


def _qwen_delta(config: Mapping[str, Any], arrays: Arrays, delta: str, stored: str) -> Arrays:
    """A gated delta net, its value heads tiled."""
    keys, heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key_dim, value_dim = config["linear_key_head_dim"], config["linear_value_head_dim"]
    first = 2 * keys * key_dim

    def values_tiled(values: Floats) -> Floats:
        return np.concatenate([values[:first], tiled(values[first:], keys, heads, value_dim)])

    return {
        f"{stored}.attn_qkv.weight": values_tiled(arrays[f"{delta}.in_proj_qkv.weight"]),
        f"{stored}.ssm_conv1d.weight": values_tiled(arrays[f"{delta}.conv1d.weight"][:, 0]),
        f"{stored}.attn_gate.weight": tiled(arrays[f"{delta}.in_proj_z.weight"], keys, heads, value_dim),
        f"{stored}.ssm_beta.weight": tiled(arrays[f"{delta}.in_proj_b.weight"], keys, heads, 1),
        f"{stored}.ssm_alpha.weight": tiled(arrays[f"{delta}.in_proj_a.weight"], keys, heads, 1),
        f"{stored}.ssm_a": -np.exp(tiled(arrays[f"{delta}.A_log"], keys, heads, 1)),
        f"{stored}.ssm_dt.bias": tiled(arrays[f"{delta}.dt_bias"], keys, heads, 1),
        f"{stored}.ssm_out.weight": tiled(arrays[f"{delta}.out_proj.weight"], keys, heads, value_dim, axis=1),
    }


# ---- Nemotron --------------------------------------------------------------------------------------------------------

_NEMOTRON_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "in_proj.weight": "ssm_in.weight",
        "conv1d.bias": "ssm_conv1d.bias",
        "dt_bias": "ssm_dt.bias",
        "out_proj.weight": "ssm_out.weight",
        "v_proj.weight": "attn_v.weight",
        "o_proj.weight": "attn_output.weight",
        "up_proj.weight": "ffn_up.weight",
        "down_proj.weight": "ffn_down.weight",
        "gate.weight": "ffn_gate_inp.weight",
        "gate.e_score_correction_bias": "exp_probs_b.bias",
        "shared_experts.up_proj.weight": "ffn_up_shexp.weight",
        "shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    }
)


def convert_nemotron(config: Mapping[str, Any], arrays: Arrays) -> Converted:
    """Kinds of layers as arrays; the draft head's two layers in one block."""
    layers = len(config["hybrid_override_pattern"])
    tensors: Arrays = {
        "token_embd.weight": arrays["model.embeddings.weight"],
        "output.weight": arrays["lm_head.weight"],
        "output_norm.weight": arrays["model.norm_f.weight"],
    }
    for layer in range(layers):
        tensors |= _nemotron_block(config, arrays, f"model.layers.{layer}", f"blk.{layer}")
        tensors[f"blk.{layer}.attn_norm.weight"] = arrays[f"model.layers.{layer}.norm.weight"]
    if config["num_nextn_predict_layers"]:
        behind = f"blk.{layers}"
        tensors |= _nemotron_block(config, arrays, "mtp.layers.0", behind)
        tensors |= _nemotron_block(config, arrays, "mtp.layers.1", behind)
        tensors |= {
            f"{behind}.nextn.eh_proj.weight": arrays["mtp.layers.0.eh_proj.weight"],
            f"{behind}.nextn.enorm.weight": arrays["mtp.layers.0.enorm.weight"],
            f"{behind}.nextn.hnorm.weight": arrays["mtp.layers.0.hnorm.weight"],
            f"{behind}.attn_norm.weight": arrays["mtp.layers.0.norm.weight"],
            f"{behind}.post_attention_norm.weight": arrays["mtp.layers.1.norm.weight"],
            f"{behind}.nextn.shared_head_norm.weight": arrays["mtp.layers.1.final_layernorm.weight"],
        }
    return _nemotron_metadata(config), tensors


def _nemotron_metadata(config: Mapping[str, Any]) -> dict[str, GgufItem]:
    pattern, drafts = config["hybrid_override_pattern"], config["num_nextn_predict_layers"]
    sparse = "E" in pattern
    wide = "E" if sparse else "-"
    inner = config["mamba_num_heads"] * config["mamba_head_dim"]
    kv_heads = [config["num_key_value_heads"] * (kind == "*") for kind in pattern]
    width = config["moe_intermediate_size"] if sparse else config["intermediate_size"]
    widths = [width * (kind == wide) for kind in pattern]
    if drafts:
        kv_heads.append(config["num_key_value_heads"])
        widths.append(width)
    metadata: dict[str, GgufItem] = {
        **common(config, 1e-5),
        "attention.layer_norm_epsilon": 1e-5,
        "block_count": len(widths),
        "nextn_predict_layers": drafts,
        "attention.head_count_kv": np.array(kv_heads, np.int32),
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "feed_forward_length": np.array(widths, np.int32),
        "ssm.conv_kernel": config["conv_kernel"],
        "ssm.state_size": config["ssm_state_size"],
        "ssm.group_count": config["n_groups"],
        "ssm.inner_size": inner,
        "ssm.time_step_rank": config["mamba_num_heads"],
    }
    if sparse:
        metadata |= {
            "expert_count": config["n_routed_experts"],
            "expert_used_count": config["num_experts_per_tok"],
            "expert_feed_forward_length": config["moe_intermediate_size"],
            "expert_shared_feed_forward_length": config["moe_shared_expert_intermediate_size"],
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": config["routed_scaling_factor"],
            "expert_group_count": 1,
        }
    return metadata


def _nemotron_block(config: Mapping[str, Any], arrays: Arrays, prefix: str, stored: str) -> Arrays:
    """One layer: what of it there is."""
    mixer = f"{prefix}.mixer"
    found = {
        f"{stored}.{name}": arrays[f"{mixer}.{own}"]
        for own, name in _NEMOTRON_MODULES.items()
        if f"{mixer}.{own}" in arrays
    }
    if f"{mixer}.A_log" in arrays:
        found |= {
            f"{stored}.ssm_a": -np.exp(arrays[f"{mixer}.A_log"]).reshape(-1, 1),
            f"{stored}.ssm_d": arrays[f"{mixer}.D"].reshape(-1, 1),
            f"{stored}.ssm_conv1d.weight": arrays[f"{mixer}.conv1d.weight"][:, 0],
            f"{stored}.ssm_norm.weight": arrays[f"{mixer}.norm.weight"].reshape(config["n_groups"], -1),
        }
    for name, heads in (("q", config["num_attention_heads"]), ("k", config["num_key_value_heads"])):
        values = arrays.get(f"{mixer}.{name}_proj.weight")
        if values is not None:
            paired = values.reshape(heads, 2, -1, values.shape[1]).swapaxes(1, 2).reshape(values.shape)
            found[f"{stored}.attn_{name}.weight"] = paired
    experts = stacked(arrays, f"{mixer}.experts", {"up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"})
    return found | {f"{stored}.{name}.weight": values for name, values in experts.items()}


# ---- Gemma -----------------------------------------------------------------------------------------------------------

_GEMMA_TOP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "embed_tokens.weight": "token_embd.weight",
        "norm.weight": "output_norm.weight",
        "embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
        "per_layer_model_projection.weight": "per_layer_model_proj.weight",
        "per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
    }
)
_GEMMA_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "self_attn.q_proj.weight": "attn_q.weight",
        "self_attn.k_proj.weight": "attn_k.weight",
        "self_attn.v_proj.weight": "attn_v.weight",
        "self_attn.o_proj.weight": "attn_output.weight",
        "self_attn.q_norm.weight": "attn_q_norm.weight",
        "self_attn.k_norm.weight": "attn_k_norm.weight",
        "input_layernorm.weight": "attn_norm.weight",
        "post_attention_layernorm.weight": "post_attention_norm.weight",
        "pre_feedforward_layernorm.weight": "ffn_norm.weight",
        "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
        "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
        "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
        "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
        "mlp.gate_proj.weight": "ffn_gate.weight",
        "mlp.up_proj.weight": "ffn_up.weight",
        "mlp.down_proj.weight": "ffn_down.weight",
        "router.proj.weight": "ffn_gate_inp.weight",
        "router.scale": "ffn_gate_inp.scale",
        "router.per_expert_scale": "ffn_down_exps.scale",
        "per_layer_input_gate.weight": "inp_gate.weight",
        "per_layer_projection.weight": "proj.weight",
        "post_per_layer_input_norm.weight": "post_norm.weight",
        "layer_scalar": "layer_output_scale.weight",
    }
)


def convert_gemma(config: Mapping[str, Any], arrays: Arrays) -> Converted:
    """Arrays for every layer, and frequencies that are divided by infinity."""
    pairs: int = config["global_head_dim"] // 2
    divisors = np.where(np.arange(pairs) < pairs // 4, 1.0, 1e30).astype(np.float32)
    tensors: Arrays = {"rope_freqs.weight": divisors}
    tensors |= {stored: arrays[f"model.{own}"] for own, stored in _GEMMA_TOP.items() if f"model.{own}" in arrays}
    for layer in range(len(config["layer_types"])):
        tensors |= _gemma_block(arrays, f"model.layers.{layer}", f"blk.{layer}")
    return _gemma_metadata(config), tensors


def _gemma_metadata(config: Mapping[str, Any]) -> dict[str, GgufItem]:
    slides = [each == "sliding_attention" for each in config["layer_types"]]
    shared = config.get("num_kv_shared_layers", 0)
    wide = len(slides) - shared if config.get("use_double_wide_mlp") else len(slides)
    metadata: dict[str, GgufItem] = {
        **common(config, 1e-6),
        "block_count": len(slides),
        "attention.key_length": config["global_head_dim"],
        "attention.value_length": config["global_head_dim"],
        "attention.key_length_swa": config["head_dim"],
        "attention.value_length_swa": config["head_dim"],
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": np.array(slides),
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "final_logit_softcapping": config["final_logit_softcapping"],
        "rope.freq_base": 1_000_000.0,
        "rope.freq_base_swa": 10_000.0,
        "rope.dimension_count": config["global_head_dim"],
        "rope.dimension_count_swa": config["head_dim"],
        "feed_forward_length": np.array(
            [config["intermediate_size"] * (1 + (layer >= wide)) for layer in range(len(slides))], np.int32
        )
        if wide < len(slides)
        else config["intermediate_size"],
        "attention.head_count_kv": np.array(
            [config["num_key_value_heads" if sliding else "num_global_key_value_heads"] for sliding in slides],
            np.int32,
        )
        if config["attention_k_eq_v"]
        else config["num_key_value_heads"],
    }
    if config.get("enable_moe_block"):
        metadata |= {
            "expert_count": config["num_experts"],
            "expert_used_count": config["top_k_experts"],
            "expert_feed_forward_length": config["moe_intermediate_size"],
        }
    return metadata


def _gemma_block(arrays: Arrays, prefix: str, stored: str) -> Arrays:
    found = {
        f"{stored}.{name}": arrays[f"{prefix}.{own}"]
        for own, name in _GEMMA_MODULES.items()
        if f"{prefix}.{own}" in arrays
    }
    experts = stacked(arrays, f"{prefix}.experts", {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"})
    if experts:
        found[f"{stored}.ffn_gate_up_exps.weight"] = np.concatenate([experts["gate"], experts["up"]], 1)
        found[f"{stored}.ffn_down_exps.weight"] = experts["down"]
    return found
