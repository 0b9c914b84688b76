"""How GGUF files of these architectures read as Hugging Face checkpoints.

Names and metadata keys are those of llama.cpp's converter, which also permutes the rows of llama's (and mistral's)
queries and keys from half-split to interleaved rotation.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tensorfold.contracts.family import GgufArchitecture, GgufTensor
from tensorfold_model_llama.decoder import ROPE_FACTORS

__all__ = ["ARCHITECTURES"]

_CONFIG: Final[Mapping[str, str]] = MappingProxyType(
    {
        "vocab_size": "{arch}.vocab_size",
        "max_position_embeddings": "{arch}.context_length",
        "hidden_size": "{arch}.embedding_length",
        "num_hidden_layers": "{arch}.block_count",
        "intermediate_size": "{arch}.feed_forward_length",
        "num_attention_heads": "{arch}.attention.head_count",
        "num_key_value_heads": "{arch}.attention.head_count_kv",
        "head_dim": "{arch}.attention.key_length",
        "rms_norm_eps": "{arch}.attention.layer_norm_rms_epsilon",
        "rope_theta": "{arch}.rope.freq_base",
        "rope_scaling.rope_type": "{arch}.rope.scaling.type",
        "rope_scaling.factor": "{arch}.rope.scaling.factor",
        "rope_scaling.original_max_position_embeddings": "{arch}.rope.scaling.original_context_length",
        "num_local_experts": "{arch}.expert_count",
    }
)

_LAYER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attn_norm.weight": "input_layernorm.weight",
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_q.bias": "self_attn.q_proj.bias",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_k.bias": "self_attn.k_proj.bias",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_v.bias": "self_attn.v_proj.bias",
        "attn_output.weight": "self_attn.o_proj.weight",
        "attn_output.bias": "self_attn.o_proj.bias",
        "attn_q_norm.weight": "self_attn.q_norm.weight",
        "attn_k_norm.weight": "self_attn.k_norm.weight",
        "ffn_norm.weight": "post_attention_layernorm.weight",
        "ffn_gate.weight": "mlp.gate_proj.weight",
        "ffn_gate.bias": "mlp.gate_proj.bias",
        "ffn_up.weight": "mlp.up_proj.weight",
        "ffn_up.bias": "mlp.up_proj.bias",
        "ffn_down.weight": "mlp.down_proj.weight",
        "ffn_down.bias": "mlp.down_proj.bias",
    }
)

_PERMUTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attn_q.weight": "num_attention_heads",
        "attn_q.bias": "num_attention_heads",
        "attn_k.weight": "num_key_value_heads",
        "attn_k.bias": "num_key_value_heads",
    }
)
"""Tensors whose rows llama.cpp permutes, to the config key of their heads."""


def _tensors(*, permuted: bool) -> Mapping[str, GgufTensor]:
    layers = {
        f"blk.{{i}}.{stored}": GgufTensor(f"model.layers.{{i}}.{name}", _PERMUTED.get(stored) if permuted else None)
        for stored, name in _LAYER.items()
    }
    return {
        "token_embd.weight": GgufTensor("model.embed_tokens.weight"),
        "output_norm.weight": GgufTensor("model.norm.weight"),
        "output.weight": GgufTensor("lm_head.weight"),
        "rope_freqs.weight": GgufTensor(ROPE_FACTORS),
        **layers,
    }


def _architecture(name: str, *, permuted: bool) -> GgufArchitecture:
    return GgufArchitecture(
        architecture=name,
        config=_CONFIG,
        tensors=_tensors(permuted=permuted),
        fixed={"model_type": name, "hidden_act": "silu"},
    )


ARCHITECTURES: Final[tuple[GgufArchitecture, ...]] = (
    _architecture("llama", permuted=True),
    _architecture("qwen2", permuted=False),
    _architecture("qwen3", permuted=False),
)
"""Mistral models are stored under `llama`, without their window, which llama.cpp does not apply."""
