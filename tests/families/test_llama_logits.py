"""The Llama family computes what transformers computes, on tiny random checkpoints that transformers wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.transformers_logits import Reference, drawn_tokens, write_reference
from tensorfold_model_llama.family import LlamaFamily

pytestmark = pytest.mark.torch

TOKENS = 48

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 10000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [1.0 + pair for pair in range(8)],
    "original_max_position_embeddings": 32,
    "rope_theta": 10000.0,
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama with every bias": ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "llama 3 rope": ("Llama", {"rope_parameters": LLAMA3, "num_key_value_heads": 4}),
    "llama linear rope": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}}),
    "llama longrope": ("Llama", {"rope_parameters": LONGROPE}),
    "llama with wide heads and gelu": ("Llama", {"head_dim": 24, "hidden_act": "gelu_pytorch_tanh"}),
    "mistral with a window": ("Mistral", {"sliding_window": 8}),
    "mistral without a window": ("Mistral", {"sliding_window": None, "num_key_value_heads": 1}),
    "qwen2 tied": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2 with windows and yarn": (
        "Qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1, "rope_parameters": YARN},
    ),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3 with mixed layers and biases": (
        "Qwen3",
        {
            "head_dim": 16,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        },
    ),
}


def write(kind: str, settings: Mapping[str, Any], path: Path) -> Reference:
    """A checkpoint with these settings, whose biases and norms are far from where they begin."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        **{
            "vocab_size": 160,
            "hidden_size": 64,
            "intermediate_size": 88,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 128,
            "initializer_range": 0.1,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "attn_implementation": "eager",
            **settings,
        }
    )
    model = getattr(transformers, f"{kind}ForCausalLM")
    far = {"bias": moved, "norm.weight": moved}
    return write_reference(lambda: model(config), drawn_tokens(TOKENS, first=0, last=159), path, far)


def moved(values: Any) -> Any:
    """Twice as far as other vectors."""
    return values + values.new_empty(values.shape).normal_() * 0.2


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
    written.check(LlamaFamily(), each_session)


def test_a_config_in_the_old_spelling_computes_the_same(tmp_path: Path) -> None:
    """`rope_theta` and `rope_scaling` at the top, as checkpoints have them that transformers 4 wrote."""
    made = write("Llama", {"rope_parameters": LLAMA3}, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    rule = config.pop("rope_parameters")
    config["rope_theta"] = rule.pop("rope_theta")
    config["rope_scaling"] = rule
    (tmp_path / "config.json").write_text(json.dumps(config))
    made.check(LlamaFamily(), ReferenceBackend().open(BackendSettings(dtype="float32")))
