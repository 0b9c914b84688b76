"""What the families' tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.reference import ReferenceBackend

Shapes: TypeAlias = Callable[[ModelConfig], dict[str, tuple[int, ...]]]

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On MLX, which is slow on a CPU, a family's contract waits for the slow tests; the fake family's does not."""
    for item in items:
        if not item.path.is_relative_to(HERE) or not item.path.stem.endswith("_contract"):
            continue
        called: object = getattr(item, "callspec", None)
        parameters: Mapping[str, object] = getattr(called, "params", {})
        if parameters.get("each_session") == "mlx":
            item.add_marker(pytest.mark.slow)


@pytest.fixture(
    scope="session",
    params=[
        "reference",
        "cpu",
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("mlx", marks=pytest.mark.mlx),
    ],
)
def each_session(request: pytest.FixtureRequest) -> Iterator[Session[Any]]:
    """Every backend that runs on a CPU, in float32, with weights as they are stored."""
    settings = BackendSettings(device="cpu", dtype="float32", threads=1, weights="exact")
    session: Session[Any]
    match request.param:
        case "cpu":
            from tensorfold_backend_cpu import CpuBackend

            session = CpuBackend().open(settings)
        case "torch":
            from tensorfold_backend_torch import TorchBackend

            session = TorchBackend().open(settings)
        case "mlx":
            from tensorfold_backend_mlx import MlxBackend

            pytest.importorskip("mlx.core")
            # Codes stand for the values that are stored, and are not expanded for being exact.
            session = MlxBackend().open(replace(settings, weights="auto"))
        case _:
            session = ReferenceBackend().open(settings)
    yield session
    session.close()


@pytest.fixture(scope="session")
def llama_tensors() -> Shapes:
    """Every tensor of a Llama-shaped checkpoint with a config, and its shape."""
    return _llama_tensors


def _llama_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, width, vocabulary = (config.positive(key) for key in ("hidden_size", "intermediate_size", "vocab_size"))
    heads, kv_heads = config.positive("num_attention_heads"), config.positive("num_key_value_heads")
    head_dim = config.positive("head_dim", hidden // heads)
    biased = bool(config.values.get("attention_bias"))
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocabulary, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.values.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (vocabulary, hidden)
    for layer in range(config.positive("num_hidden_layers")):
        attention, mlp = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        for name, rows in {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}.items():
            shapes[f"{attention}.{name}_proj.weight"] = (rows, hidden)
            if config.model_type == "qwen2" or biased:
                shapes[f"{attention}.{name}_proj.bias"] = (rows,)
        shapes[f"{attention}.o_proj.weight"] = (hidden, heads * head_dim)
        if biased:
            shapes[f"{attention}.o_proj.bias"] = (hidden,)
        if config.model_type == "qwen3":
            shapes |= {f"{attention}.{name}_norm.weight": (head_dim,) for name in "qk"}
        for name, shape in {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}.items():
            shapes[f"{mlp}.{name}_proj.weight"] = shape
            if config.values.get("mlp_bias"):
                shapes[f"{mlp}.{name}_proj.bias"] = shape[:1]
        shapes |= {f"model.layers.{layer}.{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    return shapes
