"""A quantized checkpoint gives the same greedy tokens on every backend, whether it multiplies by codes or by floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.coded_tensors import CodedTensors
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.ways import WAYS, Loaded, serial_reply
from tensorfold_model_llama.family import LlamaFamily

Shapes: TypeAlias = Callable[[ModelConfig], dict[str, tuple[int, ...]]]
Bits: TypeAlias = Callable[[str], int | None]

FAMILY = LlamaFamily()
PROMPT = tuple((7 * place + place * place) % 90 + 2 for place in range(70))
KINDS: dict[str, Bits] = {
    "4 bits": lambda name: None if "norm" in name else 4,
    "8 bits": lambda name: None if "norm" in name else 8,
    "3 bits, 6 in some modules, floats in others": lambda name: (
        None
        if "norm" in name or "o_proj" in name
        else 6
        if "down" in name or "embed" in name or "v_proj" in name
        else 3
    ),
}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens_are_the_same_on_every_backend(
    each_session: Session[Any], llama_tensors: Shapes, kind: str, tied: bool
) -> None:
    """Against the reference, which expands every code to the float that it stands for."""
    values = {
        "model_type": "llama",
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "tie_word_embeddings": tied,
        "eos_token_id": 1,
    }
    config = ModelConfig(values, {}, "config.json")
    source = CodedTensors(RandomTensors(llama_tensors(config)), KINDS[kind])
    reference = Loaded(FAMILY, config, source, ReferenceBackend().open(BackendSettings()))
    loaded = Loaded(FAMILY, config, source, each_session)
    np.testing.assert_allclose(WAYS["at once"](loaded, PROMPT), WAYS["at once"](reference, PROMPT), rtol=0, atol=1e-4)
    assert serial_reply(loaded, PROMPT, 24).tokens == serial_reply(reference, PROMPT, 24).tokens
