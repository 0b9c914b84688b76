"""The family of the walk-through: it keeps the contract, and computes what transformers computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.compute.declaring import declared_tensors
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.families import ModelFamilyContract, TinyCheckpoint
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.transformers_logits import drawn_tokens, write_reference
from tensorfold_acme.granite.family import GraniteFamily

CONFIG: dict[str, Any] = {
    "model_type": "granite",
    "vocab_size": 160,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "embedding_multiplier": 12.0,
    "attention_multiplier": 0.2,
    "residual_multiplier": 0.22,
    "logits_scaling": 4.0,
    "tie_word_embeddings": True,
    "eos_token_id": 2,
}


class TestGranite(ModelFamilyContract):
    """Tied and untied, with biases and without."""

    refused: ClassVar = {"hidden_act": "gelu", "num_local_experts": 8, "num_key_value_heads": 3}

    @pytest.fixture
    def family(self) -> ModelFamily:
        return GraniteFamily()

    @pytest.fixture(params=[{}, {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True}])
    def checkpoint(self, request: pytest.FixtureRequest) -> TinyCheckpoint:
        config = ModelConfig({**CONFIG, **request.param}, {}, "config.json")
        return TinyCheckpoint(config, RandomTensors(declared_tensors(GraniteFamily(), config)))


@pytest.fixture(scope="module", params=["reference", "torch"])
def session(request: pytest.FixtureRequest) -> Iterator[Session[Any]]:
    if request.param == "reference":
        session: Session[Any] = ReferenceBackend().open(BackendSettings())
    else:
        from tensorfold_backend_torch import TorchBackend

        session = TorchBackend().open(BackendSettings(device="cpu", dtype="float32", threads=1))
    yield session
    session.close()


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": False, "attention_bias": True, "mlp_bias": True}])
def test_logits_agree_with_transformers_however_they_are_computed(
    tmp_path: Path, changes: dict[str, Any], session: Session[Any]
) -> None:
    """At once, in chunks and one by one, beside another sequence, with wrong drafts that are taken back."""
    import transformers

    config = transformers.GraniteConfig(**{**CONFIG, **changes}, initializer_range=0.2)
    reference = write_reference(lambda: transformers.GraniteForCausalLM(config), drawn_tokens(70), tmp_path)
    assert open_checkpoint(tmp_path, [GraniteFamily()]).claim.score == 100
    reference.check(GraniteFamily(), session)
