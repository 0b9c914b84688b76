"""How GGUF files of Gemma 4's drafters read as Hugging Face checkpoints.

Names and metadata keys are those of llama.cpp's converter: a file of its own, whose metadata is that of the drafter's
text model with the target's width. Nothing is shifted or permuted, and the head is the embedding. The tables by which
some drafters guess among the likeliest clusters of tokens are not converted, and no key says how many are chosen: such a
drafter guesses among all tokens, and tables that are in a file are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from tensorfold.contracts.gguf import GgufArchitecture, GgufFacts, GgufTensor
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_gemma.gguf4_layers import CONFIG, LAYER, ROPE_FREQUENCIES, LayerFacts
from tensorfold_model_gemma.pairing import MODEL_TYPE

__all__ = ["GEMMA4_ASSISTANT"]

_TOP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "nextn.pre_projection.weight": "pre_projection.weight",
        "nextn.post_projection.weight": "post_projection.weight",
        "masked_embd_centroids.weight": "masked_embedding.centroids.weight",
        "masked_embd_ordering": "masked_embedding.token_ordering",
    }
)
_OF_A_LAYER: Final = (
    "attn_q.weight",
    "attn_output.weight",
    "attn_q_norm.weight",
    "attn_norm.weight",
    "post_attention_norm.weight",
    "ffn_norm.weight",
    "post_ffw_norm.weight",
    "ffn_gate.weight",
    "ffn_up.weight",
    "ffn_down.weight",
    "layer_output_scale.weight",
)
"""Of the tensors of a Gemma 4's layer: its keys and values are the target's."""
_NEEDED: Final = ("embedding_length_out", "attention.sliding_window")
"""Keys that tell for which target a drafter was made, and that no tensor would tell."""


def _adapted(rules: GgufArchitecture, facts: GgufFacts) -> GgufArchitecture:
    """With the text model's config, said for each type of layer."""
    for key in _NEEDED:
        if facts.get(f"{{arch}}.{key}") is None:
            raise CheckpointUnsupported(f"a {rules.architecture} file must say {key}")
    vocabulary = facts.get("{arch}.vocab_size") or len(facts.get("tokenizer.ggml.tokens") or ())
    if not vocabulary:
        raise CheckpointUnsupported(f"a {rules.architecture} file must have its vocabulary (tokenizer.ggml.tokens)")
    said = LayerFacts(facts, rules.architecture)
    drafts, layers = facts.get("{arch}.nextn_predict_layers"), len(said.types)
    if drafts not in (None, layers):
        raise CheckpointUnsupported(f"nextn_predict_layers is {drafts}, and all {layers} layers of a drafter draft")
    widths = said.each("feed_forward_length")
    if len(set(widths)) > 1:
        raise CheckpointUnsupported(f"feed_forward_length is {widths}, and a drafter's layers are all of one width")
    text: dict[str, Any] = {
        "model_type": "gemma4_text",
        "vocab_size": vocabulary,
        # Left out by a converter that has nothing to say of them.
        "hidden_size_per_layer_input": 0,
        "intermediate_size": widths[0],
        "layer_types": list(said.types),
        "enable_moe_block": bool(facts.get("{arch}.expert_count")),
        # So that a full layer's key heads are counted for themselves.
        "attention_k_eq_v": True,
        **said.heads(),
        "rope_parameters": said.rope(),
    }
    return replace(rules, fixed={**rules.fixed, "text_config": text})


GEMMA4_ASSISTANT: Final = GgufArchitecture(
    architecture="gemma4-assistant",
    config={
        "backbone_hidden_size": "{arch}.embedding_length_out",
        **{f"text_config.{key}": source for key, source in CONFIG.items()},
    },
    tensors={
        **{stored: GgufTensor(name) for stored, name in _TOP.items()},
        **{f"blk.{{i}}.{stored}": GgufTensor(f"model.layers.{{i}}.{LAYER[stored]}") for stored in _OF_A_LAYER},
    },
    fixed={"model_type": MODEL_TYPE, "tie_word_embeddings": True},
    ignored=frozenset({ROPE_FREQUENCIES}),
    adapt=_adapted,
)
