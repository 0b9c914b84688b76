"""The Flash Next family computes what transformers computes, on tiny random checkpoints that transformers wrote."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tensorfold.contracts.backend import Session
from tensorfold.testing.transformers_logits import Reference, drawn_tokens, write_reference
from tensorfold_model_flash_next.family import FlashNextFamily

pytestmark = pytest.mark.torch

VOCABULARY = 160
END = 2
TOKENS = 72
"""More than a page, and much more than the positions that an indexer may choose."""

TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 20,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "hc_count": 4,
    "hc_lowrank": 10,
    "ple_layer_ids": [2],
    "ple_embed_dim": 48,
    "ngram_size": 3,
    "heads_per_ngram": 4,
    "ngram_vocab_size_base": 101,
    "make_ngram_vocab_size_divisible_by": 8,
    "split_ngram_parts": 4,
    # With fewer, scores are often exactly 0 for many blocks, and implementations break such ties in unlike ways.
    "indexer_n_heads": 16,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 16,
    "indexer_compress_ratio": 4,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    },
    "max_position_embeddings": 256,
    "rms_norm_eps": 0.02,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": END,
}

VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "patch_size": 4,
    "num_position_embeddings": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 48,
}

CASES: dict[str, dict[str, Any]] = {
    "with a vision tower": {},
    "longer n-grams in two layers, a sigmoid gate": {
        "ple_layer_ids": [1, 3],
        "ngram_size": 4,
        "heads_per_ngram": 2,
        "split_ngram_parts": 1,
        "output_gate_type": "sigmoid",
        "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
        "indexer_compress_ratio": 2,
        "hc_count": 2,
    },
    "without n-grams, weights of experts as they are, stretched positions": {
        "ple_layer_ids": [],
        "norm_topk_prob": False,
        "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
}


def made(case: str) -> Any:
    """A model of transformers with random weights."""
    import transformers

    attention: dict[str, Any] = {"attn_implementation": "eager"}
    text = {**TEXT, **CASES[case]}
    if case != "with a vision tower":
        return transformers.Qwen4ExpForCausalLM(transformers.Qwen4ExpTextConfig(**text, **attention))
    parts: dict[str, Any] = {"text_config": text, "vision_config": VISION}
    config = transformers.Qwen4ExpConfig(
        **parts,
        image_token_id=150,
        video_token_id=151,
        vision_start_token_id=152,
        vision_end_token_id=153,
        **attention,
    )
    return transformers.Qwen4ExpForConditionalGeneration(config)


def write(case: str, path: Path) -> Reference:
    """The checkpoint of a case, and a sequence in which end tokens cut the n-grams."""
    tokens = list(drawn_tokens(TOKENS))
    for place in (0, 9, 10, 30, 52):
        tokens[place] = END
    looking = {"ple.conv1d.weight": lambda values: values.new_empty(values.shape).normal_() * 0.5}
    return write_reference(lambda: made(case), tuple(tokens), path, looking)


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """Each case's checkpoint, made once: tests run backend by backend, and each has every case."""
    return cache(lambda case: write(case, tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(params=CASES)
def written(request: pytest.FixtureRequest, references: Callable[[str], Reference]) -> Reference:
    """The checkpoint of each case."""
    return references(request.param)


def test_logits_agree_with_transformers_however_they_are_computed(
    written: Reference, each_session: Session[Any]
) -> None:
    """Every position of more than the positions an indexer may choose, in float32, to 1e-4."""
    written.check(FlashNextFamily(), each_session)
