"""How GGUF files of Gemma 3 read as Hugging Face checkpoints.

Names and metadata keys are those of llama.cpp's converter, which stores the norms as 1 + w.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tensorfold.contracts.gguf import GgufArchitecture, GgufTensor
from tensorfold_model_gemma.gemma3 import SCALE_BY_SIZE

__all__ = ["GEMMA3"]

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
        "sliding_window": "{arch}.attention.sliding_window",
        "sliding_window_pattern": "{arch}.attention.sliding_window_pattern",
        "rope_theta": "{arch}.rope.freq_base",
        "rope_local_base_freq": "{arch}.rope.freq_base_swa",
        "rope_scaling.rope_type": "{arch}.rope.scaling.type",
        "rope_scaling.factor": "{arch}.rope.scaling.factor",
        "final_logit_softcapping": "{arch}.final_logit_softcapping",
        "attn_logit_softcapping": "{arch}.attn_logit_softcapping",
    }
)

_MATRICES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attn_q.weight": "self_attn.q_proj.weight",
        "attn_k.weight": "self_attn.k_proj.weight",
        "attn_v.weight": "self_attn.v_proj.weight",
        "attn_output.weight": "self_attn.o_proj.weight",
        "ffn_gate.weight": "mlp.gate_proj.weight",
        "ffn_up.weight": "mlp.up_proj.weight",
        "ffn_down.weight": "mlp.down_proj.weight",
    }
)

_NORMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attn_norm.weight": "input_layernorm.weight",
        "attn_q_norm.weight": "self_attn.q_norm.weight",
        "attn_k_norm.weight": "self_attn.k_norm.weight",
        "post_attention_norm.weight": "post_attention_layernorm.weight",
        "ffn_norm.weight": "pre_feedforward_layernorm.weight",
        "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
    }
)

GEMMA3: Final = GgufArchitecture(
    architecture="gemma3",
    config=_CONFIG,
    tensors={
        "token_embd.weight": GgufTensor("model.embed_tokens.weight"),
        "output.weight": GgufTensor("lm_head.weight"),
        "output_norm.weight": GgufTensor("model.norm.weight", add=-1.0),
        **{f"blk.{{i}}.{stored}": GgufTensor(f"model.layers.{{i}}.{name}") for stored, name in _MATRICES.items()},
        **{
            f"blk.{{i}}.{stored}": GgufTensor(f"model.layers.{{i}}.{name}", add=-1.0) for stored, name in _NORMS.items()
        },
    },
    fixed={"model_type": "gemma3_text", SCALE_BY_SIZE: True},
)
