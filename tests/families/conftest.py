"""What the families' tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.reference import ReferenceBackend

WritesPair: TypeAlias = Callable[[Path, Mapping[str, Any], Mapping[str, Any]], tuple[list[int], NDArray[np.float32]]]
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
    for layer in range(config.layers()):
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


# ---- a Gemma 4 and its drafter -----------------------------------------------------------------------------------

_BEFORE = 71
"""Tokens before the one behind which is drafted."""
_GEMMA_SIZES = {
    "vocab_size": 160,
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "sliding_window": 80,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
}


@pytest.fixture(scope="session")
def gemma_and_assistant() -> WritesPair:
    """Writes both to folders `target` and `drafter`, as transformers does, from fields of their configs.

    It gives the tokens behind which four are drafted, and the logits of those.
    """
    return _gemma_and_assistant


def _gemma_and_assistant(
    path: Path, target_fields: Mapping[str, Any], fields: Mapping[str, Any]
) -> tuple[list[int], NDArray[np.float32]]:
    """Both checkpoints, as transformers writes them; the tokens that it drafts, and their logits."""
    import torch
    import transformers

    torch.manual_seed(3)
    made: Callable[..., Any] = transformers.Gemma4TextConfig
    both = {
        **_GEMMA_SIZES,
        **{key: target_fields[key] for key in target_fields if key.startswith(("num_g", "attention"))},
    }
    sliding, full = "sliding_attention", "full_attention"
    text = made(
        **{**both, **target_fields},
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        layer_types=[sliding, full] * 2,
    )
    own = made(
        **both,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_kv_shared_layers=3,
        layer_types=[sliding, sliding, full],
        tie_word_embeddings=fields.get("tie_word_embeddings", True),
    )
    target: Any = transformers.Gemma4ForCausalLM(text)
    assistant: Any = transformers.Gemma4AssistantForCausalLM(
        transformers.Gemma4AssistantConfig(text_config=own, backbone_hidden_size=64, **fields)
    )
    with torch.no_grad():
        for model in (target, assistant):
            model.eval().float()
            for name, each in model.state_dict().items():
                if name.endswith("layer_scalar"):
                    each.copy_(0.7 + 0.4 * torch.rand(each.shape))
                elif name.endswith("token_ordering"):
                    each.copy_(torch.randperm(len(each)))
                elif each.dim() == 1:
                    each.add_(torch.randn(each.shape) * 0.1)
        tokens = torch.randint(2, 160, (1, _BEFORE + 1))
        ran: Any = target(tokens[:, :-1], output_hidden_states=True, return_shared_kv_states=True)
        token, hidden, logits = tokens[:, -1:], ran.hidden_states[-1][:, -1:], []
        for _ in range(4):
            joined = torch.cat([target.get_input_embeddings()(token), hidden], dim=-1)
            out = assistant(
                inputs_embeds=joined,
                position_ids=torch.tensor([[_BEFORE]]),
                attention_mask=None,
                shared_kv_states=dict(ran.shared_kv_states),
            )
            token, hidden = out.logits.argmax(-1), out.last_hidden_state
            logits.append(out.logits[0, -1].numpy())
    target.save_pretrained(path / "target")
    assistant.save_pretrained(path / "drafter")
    return tokens[0].tolist(), np.stack(logits)
