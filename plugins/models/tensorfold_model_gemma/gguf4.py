"""How GGUF files of Gemma 4 read as Hugging Face checkpoints.

Names and metadata keys are those of llama.cpp's converter; which values are keys, the tensors tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from tensorfold.contracts.gguf import GgufArchitecture, GgufFacts, GgufTensor
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_gemma.gguf4_layers import CONFIG, LAYER, ROPE_FREQUENCIES, LayerFacts

__all__ = ["GEMMA4"]

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


def _adapted(rules: GgufArchitecture, facts: GgufFacts) -> GgufArchitecture:
    """With what the metadata says layer by layer, said for each type of layer."""
    said = LayerFacts(facts, rules.architecture)
    types, names = said.types, frozenset(facts.names())
    fixed: dict[str, Any] = {
        **rules.fixed,
        "layer_types": types,
        "enable_moe_block": bool(facts.get("{arch}.expert_count")),
        "attention_k_eq_v": any(
            f"blk.{layer}.attn_k.weight" in names and f"blk.{layer}.attn_v.weight" not in names
            for layer in range(len(types))
        ),
        **said.heads(),
        **_widths(facts, said),
        "rope_parameters": said.rope(),
    }
    vocabulary = facts.get("{arch}.vocab_size") or len(facts.get("tokenizer.ggml.tokens") or ())
    if vocabulary:
        fixed["vocab_size_per_layer_input"] = vocabulary
    return replace(rules, fixed=fixed)


def _widths(facts: GgufFacts, said: LayerFacts) -> dict[str, Any]:
    widths = said.each("feed_forward_length")
    shared = facts.get("{arch}.attention.shared_kv_layers") or 0
    own = len(said.types) - shared
    doubled = any(width == 2 * widths[0] for width in widths[own:])
    if set(widths[:own]) != {widths[0]} or set(widths[own:]) - {2 * widths[0] if doubled else widths[0]}:
        raise CheckpointUnsupported(
            f"feed_forward_length is {widths}, and only layers that share keys may be twice as wide"
        )
    return {"intermediate_size": widths[0], "use_double_wide_mlp": doubled}


GEMMA4: Final = GgufArchitecture(
    architecture="gemma4",
    config=CONFIG,
    tensors={
        **{stored: GgufTensor(name) for stored, name in _TOP.items()},
        **{f"blk.{{i}}.{stored}": GgufTensor(f"model.layers.{{i}}.{name}") for stored, name in LAYER.items()},
    },
    fixed={"model_type": "gemma4_text"},
    ignored=frozenset({ROPE_FREQUENCIES}),
    adapt=_adapted,
)
