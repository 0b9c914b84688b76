"""The Gemma family computes what transformers computes, on tiny random checkpoints that transformers wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.testing.transformers_logits import Reference, drawn_tokens, write_reference
from tensorfold.testing.ways import WAYS
from tensorfold_model_gemma.family import GemmaFamily

pytestmark = pytest.mark.torch

TOKENS = 72
"""More than a page, and than several windows."""
ATOL = 1e-4

SLIDING, FULL = "sliding_attention", "full_attention"

SHARED: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 72,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
}
GEMMA3: dict[str, Any] = {**SHARED, "num_hidden_layers": 7, "query_pre_attn_scalar": 24}
GEMMA4: dict[str, Any] = {
    **SHARED,
    "num_hidden_layers": 6,
    "layer_types": [SLIDING, SLIDING, FULL] * 2,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 30.0,
}
EXPERTS = {
    **GEMMA4,
    "enable_moe_block": True,
    "num_experts": 8,
    "top_k_experts": 3,
    "moe_intermediate_size": 24,
}
PER_LAYER = {
    **GEMMA4,
    "attention_k_eq_v": False,
    "hidden_size_per_layer_input": 16,
    "vocab_size_per_layer_input": 160,
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
}
VISION3 = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 8,
}
VISION4 = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "patch_size": 4,
    "position_embedding_size": 16,
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gemma 3": ("Gemma3", GEMMA3),
    "gemma 3, untied, with biases, a softcap, another activation and scaled positions": (
        "Gemma3",
        {
            **GEMMA3,
            "tie_word_embeddings": False,
            "attention_bias": True,
            "final_logit_softcapping": 2.0,
            "hidden_activation": "silu",
            "layer_types": [FULL, SLIDING, FULL],
            "num_hidden_layers": 3,
            "rope_parameters": {
                FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
                SLIDING: {"rope_type": "default", "rope_theta": 2e4},
            },
        },
    ),
    "gemma 3 with a vision tower": ("Gemma3", {"text_config": GEMMA3, "vision_config": VISION3}),
    "gemma 4": ("Gemma4", GEMMA4),
    "gemma 4, untied, with biases": (
        "Gemma4",
        {**GEMMA4, "tie_word_embeddings": False, "attention_bias": True, "final_logit_softcapping": None},
    ),
    "gemma 4 with experts": ("Gemma4", EXPERTS),
    "gemma 4 with inputs of each layer and shared keys": ("Gemma4", PER_LAYER),
    "gemma 4 with a vision tower": ("Gemma4", {"text_config": GEMMA4, "vision_config": VISION4}),
}


def made(kind: str, settings: Mapping[str, Any]) -> Any:
    """A model of transformers with random weights."""
    import transformers

    if "text_config" in settings:
        more: dict[str, Any] = {"audio_config": None} if kind == "Gemma4" else {"image_token_index": 150}
        config = getattr(transformers, f"{kind}Config")(**settings, **more, attn_implementation="eager")
        return getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    config = getattr(transformers, f"{kind}TextConfig")(**settings, attn_implementation="eager")
    return getattr(transformers, f"{kind}ForCausalLM")(config)


def write(kind: str, settings: Mapping[str, Any], path: Path) -> Reference:
    """A checkpoint with these settings."""
    factors = {"layer_scalar": around_one, "per_expert_scale": around_one}
    return write_reference(lambda: made(kind, settings), drawn_tokens(TOKENS), path, factors)


def around_one(values: Any) -> Any:
    """Factors that change what they are for, and no signs."""
    return 0.7 + 0.4 * values.new_empty(values.shape).uniform_()


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """Each case's checkpoint, made once: tests run backend by backend, and each has every case."""
    return cache(lambda case: write(*CASES[case], tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(params=CASES)
def written(request: pytest.FixtureRequest, references: Callable[[str], Reference]) -> Reference:
    """The checkpoint of each case."""
    return references(request.param)


def test_logits_agree_with_transformers_however_they_are_computed(
    written: Reference, each_session: Session[Any]
) -> None:
    """Every position, in float32, to 1e-4: at once, cached, beside another sequence, after rolled back drafts."""
    written.check(GemmaFamily(), each_session)


def test_bfloat16_computes_about_the_same(written: Reference) -> None:
    """Weights and rows in half the bytes; norms, positions, routing and recurrences stay in float32."""
    from tensorfold_backend_torch import TorchBackend

    session = TorchBackend().open(BackendSettings(device="cpu", dtype="bfloat16", threads=1))
    written.check_about(GemmaFamily(), session)
    session.close()


def respelled(path: Path, gone: tuple[str, ...], **new: Any) -> None:
    """Rewrite a text model's config with some keys gone and others in their place."""
    config = json.loads((path / "config.json").read_text())
    for key in gone:
        del config[key]
    (path / "config.json").write_text(json.dumps({**config, **new}))


def test_a_gemma_3_config_in_the_old_spelling_computes_the_same(tmp_path: Path, each_session: Session[Any]) -> None:
    """Bases, scaling and pattern at the top, as published checkpoints have them; what is the default left out."""
    rules = {
        FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
        SLIDING: {"rope_type": "default", "rope_theta": 20_000.0},
    }
    made = write("Gemma3", {**GEMMA3, "rope_parameters": rules, "query_pre_attn_scalar": 256}, tmp_path)
    respelled(
        tmp_path,
        ("rope_parameters", "layer_types", "query_pre_attn_scalar", "rms_norm_eps", "hidden_activation"),
        rope_local_base_freq=20_000.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window_pattern=6,
    )
    got = WAYS["at once"](made.loaded(GemmaFamily(), each_session), made.tokens)
    assert np.abs(got - made.logits).max() < ATOL


def test_a_gemma_4_config_as_published_computes_the_same(tmp_path: Path, each_session: Session[Any]) -> None:
    """`global_head_dim` and `num_global_key_value_heads`, where transformers writes a config for every layer."""
    made = write("Gemma4", GEMMA4, tmp_path)
    respelled(tmp_path, ("per_layer_config", "rope_parameters"), global_head_dim=32, num_global_key_value_heads=1)
    got = WAYS["at once"](made.loaded(GemmaFamily(), each_session), made.tokens)
    assert np.abs(got - made.logits).max() < ATOL
