"""The GLM family computes what transformers computes, on tiny random checkpoints that transformers wrote."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tensorfold.contracts.backend import Session
from tensorfold.testing.transformers_logits import Reference, drawn_tokens, write_reference
from tensorfold_model_glm.family import GlmFamily

pytestmark = pytest.mark.torch

VOCABULARY = 160
TOKENS = 72
"""More than a page, and much more than the positions that an indexer may choose."""

SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 64,
    "moe_intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "kv_lora_rank": 20,
    "q_lora_rank": 28,
    "v_head_dim": 12,
    "index_topk": 16,
    "index_head_dim": 16,
    # With fewer, scores are often exactly 0 for many positions, and implementations break such ties in unlike ways.
    "index_n_heads": 16,
    "max_position_embeddings": 256,
    # Large, since GLM-5.3 does not use it in every norm and Flash does.
    "rms_norm_eps": 0.02,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

GLM: dict[str, Any] = {
    **SHARED,
    "num_hidden_layers": 5,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "first_k_dense_replace": 1,
    "index_topk_freq": 3,
    "index_skip_topk_offset": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}

FLASH: dict[str, Any] = {
    **SHARED,
    "num_hidden_layers": 5,
    "layer_types": [
        "linear_attention",
        "indexed_attention",
        "linear_attention",
        "linear_attention",
        "indexed_attention",
    ],
    "mlp_layer_types": ["dense", "sparse", "sparse", "dense", "sparse"],
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 0,
    "index_kpool": 4,
    "linear_head_dim": 8,
    "linear_num_heads": 4,
    "hc_sinkhorn_iters": 2,
    "hc_eps": 0.003,
}

VISION = {
    "depth": 1,
    "hidden_size": 16,
    "num_heads": 2,
    "patch_size": 4,
    "image_size": 16,
    "out_hidden_size": 48,
    "intermediate_size": 16,
    "projection_intermediate_size": 16,
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "glm": ("GlmMoeDsa", GLM),
    "glm with an indexer in every layer, grouped experts, a tied head": (
        "GlmMoeDsa",
        {
            **GLM,
            "num_hidden_layers": 3,
            "index_topk_freq": 1,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": False,
            "n_shared_experts": 2,
            "tie_word_embeddings": True,
        },
    ),
    "flash": ("Glm5Next", FLASH),
    "flash without a bound of decay": (
        "Glm5Next",
        {**FLASH, "linear_lower_bound": None, "index_kpool": 2, "hc_mult": 2, "swiglu_limit": 0.2},
    ),
}


def made(kind: str, settings: dict[str, Any]) -> Any:
    """A model of transformers with random weights."""
    import transformers

    attention: dict[str, Any] = {"attn_implementation": "eager"}
    if kind == "GlmMoeDsa":
        return transformers.GlmMoeDsaForCausalLM(transformers.GlmMoeDsaConfig(**settings, **attention))
    parts: dict[str, Any] = {"text_config": settings, "vision_config": VISION}
    config = transformers.Glm5NextConfig(**parts, image_token_id=150, video_token_id=151, **attention)
    return transformers.Glm5NextForConditionalGeneration(config)


def write(case: str, path: Path) -> Reference:
    """The checkpoint of a case."""
    pooling = {"compress_ape": nudged, "compress_gate": nudged}
    return write_reference(lambda: made(*CASES[case]), drawn_tokens(TOKENS), path, pooling)


def nudged(values: Any) -> Any:
    """What begins at zero."""
    return values + values.new_empty(values.shape).normal_() * 0.1


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
    written.check(GlmFamily(), each_session)
