"""Configs of tiny models, one of each kind that the families run: every kind of layer, several draft heads, a few widths.

Their vocabulary is that of the tiny tokenizer, and the columns of their matrices are multiples of 32, so that every
quantized format can hold them. They are data: which family runs one is found out as for any other checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tensorfold.testing.tiny_tokenizer import CONTROL_TOKENS, TINY_VOCABULARY

__all__ = ["DRAFTER_CONFIGS", "FAMILY_CONFIGS"]

HIDDEN: Final = 64
_SHARED: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "vocab_size": TINY_VOCABULARY,
        "hidden_size": HIDDEN,
        "max_position_embeddings": 512,
        "bos_token_id": TINY_VOCABULARY - len(CONTROL_TOKENS),
        "eos_token_id": TINY_VOCABULARY - len(CONTROL_TOKENS) + 2,
    }
)
_HEADS: Final[Mapping[str, Any]] = MappingProxyType(
    {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
)
_DELTA: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
    }
)

_QWEN: Final[dict[str, Any]] = {
    "model_type": "qwen3_5_text",
    **_SHARED,
    **_HEADS,
    **_DELTA,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]},
    "mtp_num_hidden_layers": 1,
}
_QWEN_MOE: Final[dict[str, Any]] = {
    **_QWEN,
    "model_type": "qwen3_5_moe_text",
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64,
}
_FLASH_NEXT: Final[dict[str, Any]] = {
    "model_type": "qwen4_exp_text",
    **_SHARED,
    **_HEADS,
    **_DELTA,
    "num_hidden_layers": 3,
    "layer_types": ["full_attention", "linear_attention", "full_attention"],
    "rope_parameters": {"rope_theta": 1000.0, "partial_rotary_factor": 0.5, "rope_type": "default"},
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "hc_count": 3,
    "hc_lowrank": 32,
    "ple_layer_ids": [2],
    "ple_embed_dim": 64,
    "ngram_size": 3,
    "heads_per_ngram": 1,
    "ngram_vocab_size_base": 61,
    "make_ngram_vocab_size_divisible_by": 8,
    "indexer_n_heads": 16,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 12,
    "indexer_compress_ratio": 4,
    "mtp_num_hidden_layers": 1,
}
_LATENT: Final[dict[str, Any]] = {
    **_SHARED,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_attention_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "routed_scaling_factor": 1.5,
    "index_topk": 12,
    "index_head_dim": 32,
    "index_n_heads": 16,
    "num_nextn_predict_layers": 1,
    "num_hidden_layers": 3,
    "mlp_layer_types": ["dense", "sparse", "sparse"],
}
_GLM: Final[dict[str, Any]] = {
    "model_type": "glm_moe_dsa",
    **_LATENT,
    "qk_rope_head_dim": 8,
    "indexer_types": ["full", "shared", "full"],
}
_GLM_FLASH: Final[dict[str, Any]] = {
    "model_type": "glm5_next_text",
    **_LATENT,
    "qk_rope_head_dim": 0,
    "layer_types": ["linear_attention", "deepseek_sparse_attention", "linear_attention"],
    "index_kpool": 4,
    "linear_attn_config": {"head_dim": 32, "num_heads": 2, "short_conv_kernel_size": 4},
    "hc_mult": 3,
    "hc_sinkhorn_iters": 4,
}
_NEMOTRON: Final[dict[str, Any]] = {
    "model_type": "nemotron_h",
    **_SHARED,
    **_HEADS,
    "intermediate_size": 96,
    "hybrid_override_pattern": "MEM*E-",
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 16,
    "conv_kernel": 4,
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 64,
    "routed_scaling_factor": 2.5,
    "num_nextn_predict_layers": 1,
}
_GEMMA4: Final[dict[str, Any]] = {
    "model_type": "gemma4_text",
    **_SHARED,
    **_HEADS,
    "intermediate_size": 96,
    "sliding_window": 24,
    "final_logit_softcapping": 20.0,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
}

FAMILY_CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "llama": {
            "model_type": "llama",
            **_SHARED,
            **_HEADS,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        },
        "qwen3_5": _QWEN,
        "qwen3_5_moe": _QWEN_MOE,
        "qwen4_exp": _FLASH_NEXT,
        "glm_moe_dsa": _GLM,
        "glm5_next": _GLM_FLASH,
        "nemotron_h": _NEMOTRON,
        "gemma3": {
            "model_type": "gemma3_text",
            **_SHARED,
            **_HEADS,
            "intermediate_size": 96,
            "sliding_window": 24,
            "num_hidden_layers": 3,
            "sliding_window_pattern": 2,
            "query_pre_attn_scalar": 16,
        },
        "gemma4": _GEMMA4,
        "gemma4, experts": {
            **_GEMMA4,
            "enable_moe_block": True,
            "num_experts": 6,
            "top_k_experts": 2,
            "moe_intermediate_size": 32,
        },
        "gemma4, E": {
            **_GEMMA4,
            "attention_k_eq_v": False,
            "hidden_size_per_layer_input": 32,
            "vocab_size_per_layer_input": TINY_VOCABULARY,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
        },
    }
)
"""By the model type, and where that has several kinds, the kind."""

DRAFTER_CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "gemma4": {
            "model_type": "gemma4_assistant",
            "backbone_hidden_size": _SHARED["hidden_size"],
            "text_config": {
                **_GEMMA4,
                "hidden_size": 32,
                "intermediate_size": 48,
                "num_hidden_layers": 2,
                "num_kv_shared_layers": 2,
                "layer_types": ["sliding_attention", "full_attention"],
            },
        }
    }
)
"""Drafters in checkpoints of their own, by the name of the config that each is made for."""
