"""The Gemma family keeps the contract of families, on every backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest

from tensorfold.compute.loading import load_decoder
from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.array_tensors import ArrayTensors, arrays_of
from tensorfold.testing.families import ModelFamilyContract, TinyCheckpoint
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold.testing.ways import WAYS, Loaded
from tensorfold_model_gemma.family import GemmaFamily

Shapes = dict[str, tuple[int, ...]]

HIDDEN, WIDTH, EXPERTS, EXPERT, PER_LAYER, VOCABULARY = 32, 40, 6, 12, 10, 90
HEADS, KV_HEADS, HEAD_DIM, FULL_HEADS, FULL_DIM = 4, 2, 8, 1, 12
SLIDING, FULL = "sliding_attention", "full_attention"

SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "sliding_window": 24,
    "max_position_embeddings": 256,
    "final_logit_softcapping": 20.0,
    "eos_token_id": 1,
}
GEMMA3: dict[str, Any] = {
    "model_type": "gemma3_text",
    **SHARED,
    "num_hidden_layers": 3,
    "sliding_window_pattern": 2,
    "query_pre_attn_scalar": 10,
}
GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text",
    **SHARED,
    "num_hidden_layers": 4,
    "layer_types": [SLIDING, FULL, SLIDING, FULL],
    "global_head_dim": FULL_DIM,
    "num_global_key_value_heads": FULL_HEADS,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
}
WITH_EXPERTS = {
    **GEMMA4,
    "enable_moe_block": True,
    "num_experts": EXPERTS,
    "top_k_experts": 2,
    "moe_intermediate_size": EXPERT,
}
PER_LAYER_INPUTS = {
    **GEMMA4,
    "attention_k_eq_v": False,
    "hidden_size_per_layer_input": PER_LAYER,
    "vocab_size_per_layer_input": VOCABULARY,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
    "tie_word_embeddings": False,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "gemma 3 with biases": {**GEMMA3, "attention_bias": True},
    "gemma 4": GEMMA4,
    "gemma 4 with experts": WITH_EXPERTS,
    "gemma 4 with inputs of each layer and shared keys": PER_LAYER_INPUTS,
}


def attention(prefix: str, values: Mapping[str, Any], number: int) -> Shapes:
    """The projections and norms that a layer has."""
    gemma4, full = values["model_type"] == "gemma4_text", values.get("layer_types", [SLIDING] * 9)[number] == FULL
    head_dim = FULL_DIM if gemma4 and full else HEAD_DIM
    values_are_keys = bool(values.get("attention_k_eq_v"))
    keys = (FULL_HEADS if values_are_keys and full else KV_HEADS) * head_dim
    rows = {"q": HEADS * head_dim, "k": keys, "v": keys, "o": HIDDEN}
    norms = "qk"
    if number >= values["num_hidden_layers"] - values.get("num_kv_shared_layers", 0):
        rows, norms = {"q": rows["q"], "o": rows["o"]}, "q"
    elif values_are_keys and full:
        del rows["v"]
    shapes: Shapes = {f"{name}_proj.weight": (size, HIDDEN) for name, size in rows.items()}
    shapes["o_proj.weight"] = (HIDDEN, HEADS * head_dim)
    if values.get("attention_bias"):
        shapes |= {f"{name}_proj.bias": (size,) for name, size in rows.items()}
    shapes |= {f"{name}_norm.weight": (head_dim,) for name in norms}
    return {f"{prefix}.self_attn.{name}": shape for name, shape in shapes.items()}


def layer(prefix: str, values: Mapping[str, Any], number: int) -> Shapes:
    """One layer."""
    shared = number >= values["num_hidden_layers"] - values.get("num_kv_shared_layers", 0)
    width = 2 * WIDTH if shared and values.get("use_double_wide_mlp") else WIDTH
    shapes: Shapes = {
        **{f"mlp.{name}_proj.weight": (width, HIDDEN) for name in ("gate", "up")},
        "mlp.down_proj.weight": (HIDDEN, width),
    }
    norms = ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"]
    if values["model_type"] == "gemma4_text":
        shapes["layer_scalar"] = (1,)
    if values.get("hidden_size_per_layer_input"):
        norms.append("post_per_layer_input_norm")
        shapes |= {
            "per_layer_input_gate.weight": (PER_LAYER, HIDDEN),
            "per_layer_projection.weight": (HIDDEN, PER_LAYER),
        }
    if values.get("enable_moe_block"):
        norms += ["post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"]
        shapes |= {
            "router.proj.weight": (EXPERTS, HIDDEN),
            "router.scale": (HIDDEN,),
            "router.per_expert_scale": (EXPERTS,),
            "experts.gate_up_proj": (EXPERTS, 2 * EXPERT, HIDDEN),
            "experts.down_proj": (EXPERTS, HIDDEN, EXPERT),
        }
    shapes |= {f"{name}.weight": (HIDDEN,) for name in norms}
    return attention(prefix, values, number) | {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def tensors(values: Mapping[str, Any]) -> Shapes:
    """Every tensor of a checkpoint with one of the configs above, and its shape."""
    layers = values["num_hidden_layers"]
    shapes: Shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not values.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    if values.get("hidden_size_per_layer_input"):
        shapes |= {
            "model.embed_tokens_per_layer.weight": (VOCABULARY, layers * PER_LAYER),
            "model.per_layer_model_projection.weight": (layers * PER_LAYER, HIDDEN),
            "model.per_layer_projection_norm.weight": (PER_LAYER,),
        }
    for number in range(layers):
        shapes |= layer(f"model.layers.{number}", values, number)
    return shapes


def config(values: Mapping[str, Any]) -> ModelConfig:
    return ModelConfig(values, {}, "config.json")


class TestGemmaFamily(ModelFamilyContract):
    """Both generations, and what some models of the second add."""

    refused: ClassVar[Mapping[str, Any]] = {
        "hidden_activation": "gelu",
        "attn_logit_softcapping": 50.0,
        "num_experts": -1,
        "num_attention_heads": 5,
        "layer_types": [FULL],
        "final_logit_softcapping": 0.0,
        "use_bidirectional_attention": "all",
        "rope_parameters": {"rope_type": "default"},
    }
    steering: ClassVar[tuple[str, ...]] = ("*.layer_scalar", "*.per_expert_scale")

    @pytest.fixture
    def session(self, each_session: Session[Any]) -> Session[Any]:
        """Every backend."""
        return each_session

    @pytest.fixture
    def family(self) -> ModelFamily:
        """The Gemma family."""
        return GemmaFamily()

    @pytest.fixture(params=CONFIGS)
    def checkpoint(self, request: pytest.FixtureRequest) -> TinyCheckpoint:
        """Random weights."""
        values = CONFIGS[request.param]
        return TinyCheckpoint(config(values), RandomTensors(tensors(values)))


def test_what_training_left_of_shared_keys_is_no_reason_to_refuse(each_session: Session[Any]) -> None:
    """Layers that read an earlier layer's keys and values may still have projections of their own."""
    shapes = tensors(PER_LAYER_INPUTS)
    shapes |= {f"model.layers.3.self_attn.{name}_proj.weight": (FULL_DIM, HIDDEN) for name in "kv"}
    shapes["model.layers.3.self_attn.k_norm.weight"] = (FULL_DIM,)
    load_decoder(GemmaFamily(), config(PER_LAYER_INPUTS), RandomTensors(shapes), each_session.packer)


def test_names_of_mlx_are_read(each_session: Session[Any]) -> None:
    """Experts stacked under another module, everything under the language model's root: the same bits."""
    arrays = arrays_of(tensors(WITH_EXPERTS))
    renamed = {f"language_model.{name}": values for name, values in arrays.items() if ".experts." not in name}
    for name, values in arrays.items():
        before = f"language_model.{name.rsplit('.', 1)[0]}.switch_glu"
        if name.endswith("experts.gate_up_proj"):
            renamed[f"{before}.gate_proj.weight"] = values[:, :EXPERT]
            renamed[f"{before}.up_proj.weight"] = values[:, EXPERT:]
        elif name.endswith("experts.down_proj"):
            renamed[f"{before}.down_proj.weight"] = values
    tokens = tuple(range(2, 42))
    got, expected = (
        WAYS["at once"](Loaded(GemmaFamily(), config(WITH_EXPERTS), ArrayTensors(each), each_session), tokens)
        for each in (renamed, arrays)
    )
    np.testing.assert_array_equal(got, expected)
