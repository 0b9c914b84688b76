"""ACME's checkpoint, as its own trainers would leave it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import Dense
from tensorfold.testing.families import TinyCheckpoint
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold.testing.safetensors_writer import write_safetensors
from tensorfold.testing.tiny_tokenizer import TINY_VOCABULARY, tiny_tokenizer

HIDDEN = 32
CONFIG = {
    "model_type": "acme",
    "architectures": ["AcmeForCausalLM"],
    "vocab_size": TINY_VOCABULARY,
    "hidden_size": HIDDEN,
    "max_position_embeddings": 256,
    "eos_token_id": TINY_VOCABULARY - 4,
}


@pytest.fixture(scope="session")
def acme_checkpoint() -> TinyCheckpoint:
    """The checkpoint in memory."""
    shapes = {
        "words.weight": (TINY_VOCABULARY, HIDDEN),
        "norm.weight": (HIDDEN,),
        **{f"layer.{name}_proj.weight": (HIDDEN, HIDDEN) for name in "qkvo"},
    }
    return TinyCheckpoint(ModelConfig(CONFIG, {}, "config.json"), RandomTensors(shapes))


@pytest.fixture(scope="session")
def folder(acme_checkpoint: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint on disk."""
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    source = acme_checkpoint.source
    read = {name: source.read(name) for name in source.names()}
    dense = {name: tensor.values for name, tensor in read.items() if isinstance(tensor, Dense)}
    write_safetensors(folder / "model.safetensors", dense)
    return folder
