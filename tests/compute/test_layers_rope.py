"""Rotary frequencies from configs: transformers' numbers, both spellings, refusals by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.layers.rope import context_window, divided, rope_of
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

HEAD_DIM = 16

RULES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "another theta": {"rope_type": "default", "rope_theta": 1000000.0},
    "linear": {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
        "rope_theta": 500000.0,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0},
    "yarn with all its numbers": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 128,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
        "truncate": False,
        "rope_theta": 50000.0,
    },
    "yarn with a given scale": {
        "rope_type": "yarn",
        "factor": 4.0,
        "attention_factor": 1.25,
        "original_max_position_embeddings": 64,
        "rope_theta": 10000.0,
    },
    "longrope beyond its pretraining": {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.1 * pair for pair in range(8)],
        "long_factor": [2.0 + 0.5 * pair for pair in range(8)],
        "original_max_position_embeddings": 64,
        "rope_theta": 10000.0,
    },
    "longrope within its pretraining": {
        "rope_type": "longrope",
        "short_factor": [1.0 + 0.1 * pair for pair in range(8)],
        "long_factor": [2.0 + 0.5 * pair for pair in range(8)],
        "factor": 4.0,
        "original_max_position_embeddings": 256,
        "rope_theta": 10000.0,
    },
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
}


def config(**values: Any) -> ModelConfig:
    return ModelConfig({"max_position_embeddings": 256, **values}, {}, "config.json")


def transformers_rope(parameters: Mapping[str, Any]) -> tuple[np.ndarray[Any, Any], float]:
    """The frequencies and the scale that transformers uses for a sequence as long as the window."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    theirs = LlamaConfig(
        hidden_size=HEAD_DIM * 4,
        num_attention_heads=4,
        max_position_embeddings=256,
        rope_parameters=dict(parameters),
    )
    kind = parameters["rope_type"]
    if kind == "default":
        frequencies, scale = LlamaRotaryEmbedding.compute_default_rope_parameters(theirs)
    else:
        frequencies, scale = ROPE_INIT_FUNCTIONS[kind](theirs, None, seq_len=256)
    return frequencies.numpy(), float(scale)


@pytest.mark.torch
@pytest.mark.parametrize("name", RULES)
def test_frequencies_and_scale_are_those_of_transformers(name: str) -> None:
    """To the last bits of float32, for every rule."""
    expected, scale = transformers_rope(RULES[name])
    rope = rope_of(config(rope_parameters=RULES[name]), HEAD_DIM)
    np.testing.assert_allclose(np.asarray(rope.inv_freq), expected, rtol=3e-7)
    assert rope.scale == pytest.approx(scale, rel=1e-12)
    assert not rope.interleaved


@pytest.mark.parametrize("name", [name for name in RULES if name != "proportional"])
def test_the_old_spelling_means_the_same(name: str) -> None:
    """`rope_theta` and `rope_scaling` at the top, the rule under `type` or `rope_type`."""
    rule = {key: value for key, value in RULES[name].items() if key != "rope_theta"}
    theta = RULES[name]["rope_theta"]
    expected = rope_of(config(rope_parameters=RULES[name]), HEAD_DIM)
    assert rope_of(config(rope_theta=theta, rope_scaling=rule), HEAD_DIM) == expected
    rule["type"] = rule.pop("rope_type")
    assert rope_of(config(rope_theta=theta, rope_scaling=rule), HEAD_DIM) == expected


def test_a_config_without_a_rule_turns_by_the_usual_base() -> None:
    """Neither section, or null: theta 10000, every pair."""
    plain = rope_of(config(), HEAD_DIM)
    assert rope_of(config(rope_scaling=None, rope_theta=10000), HEAD_DIM) == plain
    assert rope_of(config(rope_scaling={"rope_type": "none"}), HEAD_DIM) == plain
    linear = {"rope_type": "linear", "factor": 2.0}
    assert rope_of(config(rope_scaling={}, rope_parameters=linear), HEAD_DIM) != plain
    assert len(plain.inv_freq) == HEAD_DIM // 2 and plain.inv_freq[0] == 1.0 and plain.scale == 1.0
    assert rope_of(config(), HEAD_DIM, interleaved=True).interleaved


def test_a_part_of_the_head_is_rotated_when_the_config_says_so() -> None:
    """`partial_rotary_factor`, in the section or beside it."""
    for values in (
        {"partial_rotary_factor": 0.5},
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    ):
        assert rope_of(config(**values), HEAD_DIM) == rope_of(config(), HEAD_DIM // 2)


def test_layer_types_may_have_a_rule_each() -> None:
    """A section for each type of layer."""
    nested = config(
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            "full_attention": RULES["linear"],
        }
    )
    assert rope_of(nested, HEAD_DIM, layer_type="sliding_attention") == rope_of(config(), HEAD_DIM)
    assert rope_of(nested, HEAD_DIM, layer_type="full_attention") == rope_of(
        config(rope_parameters=RULES["linear"]), HEAD_DIM
    )


def test_the_pretraining_length_beside_the_section_counts_before_the_one_in_it() -> None:
    """As in transformers."""
    rule = {**RULES["llama3"], "original_max_position_embeddings": 32}
    beside = rope_of(config(rope_parameters=rule, original_max_position_embeddings=64), HEAD_DIM)
    assert beside == rope_of(config(rope_parameters=RULES["llama3"]), HEAD_DIM)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"rope_scaling": {"rope_type": "su", "factor": 2.0}}, "rope_type is 'su'"),
        ({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}, "rope_type is 'mrope'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_scaling": {"factor": 2.0}}, "factor is given, and no rope_type"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor is 0"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, "factor is '2'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor"),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0}},
            "high_freq_factor 4.0",
        ),
        ({"rope_scaling": {**RULES["longrope beyond its pretraining"], "long_factor": [1.0]}}, "long_factor must be"),
        ({"rope_scaling": [1.0]}, "rope_scaling must be an object"),
        ({"rope_theta": -1.0}, "rope_theta is -1"),
        ({"rope_theta": float("nan")}, "rope_theta is nan"),
        ({"rope_theta": 10**400}, "rope_theta is 1000.* must be a finite number"),
        ({"rope_scaling": {**RULES["yarn"], "partial_rotary_factor": 0.35}}, "rotates 5 of a head's 16 dimensions"),
        ({"rope_scaling": {**RULES["yarn"], "beta_fast": -1}}, "beta_fast is -1"),
        ({"rope_scaling": {**RULES["yarn"], "beta_slow": float("inf")}}, "beta_slow is inf"),
        ({"rope_scaling": {**RULES["longrope beyond its pretraining"], "partial_rotary_factor": 0.7}}, "rotates 11"),
        (
            {"rope_scaling": {**RULES["longrope beyond its pretraining"], "original_max_position_embeddings": 1}},
            "original_max_position_embeddings is 1",
        ),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5, and must be from 0 to 1"),
        ({"partial_rotary_factor": float("nan")}, "partial_rotary_factor is nan"),
    ],
)
def test_a_rule_that_cannot_be_run_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    """The message has the key, its value and what would do."""
    with pytest.raises(CheckpointUnsupported, match=named):
        rope_of(config(**values), HEAD_DIM)


def test_the_window_is_the_longest_sequence_that_the_checkpoint_was_made_for() -> None:
    """`max_position_embeddings`, and with YaRN at least the pretraining's length times the factor."""
    assert context_window(config()) == 256
    assert context_window(config(rope_parameters=RULES["linear"])) == 256
    assert context_window(config(rope_parameters=RULES["yarn with all its numbers"])) == 1024
    assert context_window(config(rope_parameters=RULES["yarn"])) == 256


def test_frequencies_may_be_divided_by_stored_factors() -> None:
    """As GGUF files store Llama 3's rule."""
    plain = rope_of(config(rope_theta=500000.0), HEAD_DIM)
    wanted = np.asarray(rope_of(config(rope_parameters=RULES["llama3"]), HEAD_DIM).inv_freq, np.float32)
    factors: NDArray[np.float32] = np.divide(np.asarray(plain.inv_freq, np.float32), wanted)
    np.testing.assert_allclose(np.asarray(divided(plain, factors).inv_freq), wanted, rtol=2e-7)
