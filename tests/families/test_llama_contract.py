"""The Llama family keeps the contract of families, on every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias

import pytest

from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.families import ModelFamilyContract, TinyCheckpoint
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold_model_llama.family import LlamaFamily

Shapes: TypeAlias = Callable[[ModelConfig], dict[str, tuple[int, ...]]]

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
    "mistral": {"model_type": "mistral", "sliding_window": 24},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {
        "model_type": "qwen3",
        "head_dim": 12,
        "use_sliding_window": True,
        "sliding_window": 40,
        "max_window_layers": 1,
    },
}


def tiny(name: str) -> ModelConfig:
    """A config of three layers."""
    values = {
        "vocab_size": 100,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "eos_token_id": 1,
        **CONFIGS[name],
    }
    return ModelConfig(values, {}, f"{name}/config.json")


class TestLlamaFamily(ModelFamilyContract):
    """Each of the four model types, with biases, windows, head widths and tied heads among them."""

    refused: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "selu",
        "num_local_experts": 4,
        "rope_scaling": {"rope_type": "own"},
        "vocab_size": 0,
    }

    @pytest.fixture
    def session(self, each_session: Session[Any]) -> Session[Any]:
        """Every backend."""
        return each_session

    @pytest.fixture
    def family(self) -> ModelFamily:
        """The Llama family."""
        return LlamaFamily()

    @pytest.fixture(params=CONFIGS)
    def checkpoint(self, request: pytest.FixtureRequest, llama_tensors: Shapes) -> TinyCheckpoint:
        """Random weights."""
        config = tiny(request.param)
        return TinyCheckpoint(config, RandomTensors(llama_tensors(config)))
