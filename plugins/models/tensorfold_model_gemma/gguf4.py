"""How GGUF files of Gemma 4 read as Hugging Face checkpoints.

Names and metadata keys are those of llama.cpp's converter. It has arrays for every layer where the config has one key for
each type of layer; which values are keys, and whether keys are shared, the tensors tell; and what part of a full layer's
head is rotated, `rope_freqs` tells, by which a pair is divided (1e30: it stands still).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, cast

from tensorfold.contracts.gguf import GgufArchitecture, GgufFacts, GgufTensor
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_gemma.keys import FULL, SLIDING

__all__ = ["GEMMA4"]

_ROPE_FREQUENCIES: Final = "rope_freqs.weight"
_CONFIG: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vocab_size": "{arch}.vocab_size",
        "max_position_embeddings": "{arch}.context_length",
        "hidden_size": "{arch}.embedding_length",
        "num_hidden_layers": "{arch}.block_count",
        "num_attention_heads": "{arch}.attention.head_count",
        "head_dim": "{arch}.attention.key_length_swa",
        "global_head_dim": "{arch}.attention.key_length",
        "rms_norm_eps": "{arch}.attention.layer_norm_rms_epsilon",
        "sliding_window": "{arch}.attention.sliding_window",
        "num_kv_shared_layers": "{arch}.attention.shared_kv_layers",
        "hidden_size_per_layer_input": "{arch}.embedding_length_per_layer_input",
        "final_logit_softcapping": "{arch}.final_logit_softcapping",
        "num_experts": "{arch}.expert_count",
        "top_k_experts": "{arch}.expert_used_count",
        "moe_intermediate_size": "{arch}.expert_feed_forward_length",
    }
)
_TOP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "token_embd.weight": "model.embed_tokens.weight",
        "output.weight": "lm_head.weight",
        "output_norm.weight": "model.norm.weight",
        "per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
        "per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
        "per_layer_proj_norm.weight": "model.per_layer_projection_norm.weight",
    }
)
_LAYER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_output.weight": "self_attn.o_proj.weight",
        "attn_q_norm.weight": "self_attn.q_norm.weight",
        "attn_k_norm.weight": "self_attn.k_norm.weight",
        "attn_norm.weight": "input_layernorm.weight",
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "ffn_norm.weight": "pre_feedforward_layernorm.weight",
        "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
        "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
        "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
        "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
        "ffn_gate.weight": "mlp.gate_proj.weight",
        "ffn_up.weight": "mlp.up_proj.weight",
        "ffn_down.weight": "mlp.down_proj.weight",
        "ffn_gate_inp.weight": "router.proj.weight",
        "ffn_gate_inp.scale": "router.scale",
        "ffn_down_exps.scale": "router.per_expert_scale",
        "ffn_gate_up_exps.weight": "experts.gate_up_proj",
        "ffn_down_exps.weight": "experts.down_proj",
        "inp_gate.weight": "per_layer_input_gate.weight",
        "proj.weight": "per_layer_projection.weight",
        "post_norm.weight": "post_per_layer_input_norm.weight",
        "layer_output_scale.weight": "layer_scalar",
    }
)


def _adapted(rules: GgufArchitecture, facts: GgufFacts) -> GgufArchitecture:
    """With what the metadata says layer by layer, said for each type of layer."""
    slides = facts.get("{arch}.attention.sliding_window_pattern")
    if not isinstance(slides, list):
        raise CheckpointUnsupported(
            "a gemma4 file must say of every layer whether it slides (attention.sliding_window_pattern)"
        )
    types = [SLIDING if each else FULL for each in cast("list[Any]", slides)]
    names = frozenset(facts.names())
    fixed: dict[str, Any] = {
        **rules.fixed,
        "layer_types": types,
        "enable_moe_block": bool(facts.get("{arch}.expert_count")),
        "attention_k_eq_v": any(
            f"blk.{layer}.attn_k.weight" in names and f"blk.{layer}.attn_v.weight" not in names
            for layer in range(len(types))
        ),
        **_heads(facts, types),
        **_widths(facts, types),
        "rope_parameters": _rope(facts, names),
    }
    vocabulary = facts.get("{arch}.vocab_size") or len(facts.get("tokenizer.ggml.tokens") or ())
    if vocabulary:
        fixed["vocab_size_per_layer_input"] = vocabulary
    return replace(rules, fixed=fixed)


def _by_layer(facts: GgufFacts, key: str, layers: int) -> list[int]:
    """One number for all of them, or one for each."""
    value: Any = facts.get(f"{{arch}}.{key}")
    values = [int(each) for each in cast("list[Any]", value)] if isinstance(value, list) else [value] * layers
    if len(values) != layers or not all(isinstance(each, int) for each in values):
        raise CheckpointUnsupported(f"a gemma4 file must say {key}, one number for all of its {layers} layers or each")
    return values


def _heads(facts: GgufFacts, types: list[Any]) -> dict[str, int]:
    counts = _by_layer(facts, "attention.head_count_kv", len(types))
    by_type = {
        type: {count for count, own in zip(counts, types, strict=True) if own == type} for type in (SLIDING, FULL)
    }
    if any(len(each) > 1 for each in by_type.values()):
        raise CheckpointUnsupported(f"attention.head_count_kv is {counts}, and must be one number for a type of layers")
    sliding, full = (next(iter(by_type[type]), counts[0]) for type in (SLIDING, FULL))
    return {"num_key_value_heads": sliding, "num_global_key_value_heads": full}


def _widths(facts: GgufFacts, types: list[Any]) -> dict[str, Any]:
    widths = _by_layer(facts, "feed_forward_length", len(types))
    shared = facts.get("{arch}.attention.shared_kv_layers") or 0
    own = len(types) - shared
    doubled = any(width == 2 * widths[0] for width in widths[own:])
    if set(widths[:own]) != {widths[0]} or set(widths[own:]) - {2 * widths[0] if doubled else widths[0]}:
        raise CheckpointUnsupported(
            f"feed_forward_length is {widths}, and only layers that share keys may be twice as wide"
        )
    return {"intermediate_size": widths[0], "use_double_wide_mlp": doubled}


def _rope(facts: GgufFacts, names: frozenset[str]) -> dict[str, Any]:
    full: dict[str, Any] = {"rope_type": "proportional", "partial_rotary_factor": 1.0}
    if _ROPE_FREQUENCIES in names:
        divisors = facts.values(_ROPE_FREQUENCIES)
        turning = int((divisors < 1e20).sum())
        if (divisors[:turning] != 1).any() or (divisors[turning:] < 1e20).any():
            raise CheckpointUnsupported(f"{_ROPE_FREQUENCIES} divides frequencies by others than 1 and infinity")
        full["partial_rotary_factor"] = turning / len(divisors)
    sliding: dict[str, Any] = {"rope_type": "default"}
    for rule, key in ((full, "rope.freq_base"), (sliding, "rope.freq_base_swa")):
        base = facts.get(f"{{arch}}.{key}")
        if base is None:
            raise CheckpointUnsupported(f"a gemma4 file must say {key}")
        rule["rope_theta"] = base
    return {SLIDING: sliding, FULL: full}


GEMMA4: Final = GgufArchitecture(
    architecture="gemma4",
    config=_CONFIG,
    tensors={
        **{stored: GgufTensor(name) for stored, name in _TOP.items()},
        **{f"blk.{{i}}.{stored}": GgufTensor(f"model.layers.{{i}}.{name}") for stored, name in _LAYER.items()},
    },
    fixed={"model_type": "gemma4_text"},
    ignored=frozenset({_ROPE_FREQUENCIES}),
    adapt=_adapted,
)
