"""The Qwen family computes what transformers computes, on tiny random checkpoints that transformers wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.array_tensors import ArrayTensors
from tensorfold.testing.transformers_logits import Reference, drawn_tokens, write_reference
from tensorfold.testing.ways import WAYS, Loaded
from tensorfold_model_qwen.family import QwenFamily

pytestmark = pytest.mark.torch

TOKENS = 72
"""More than a page, and than a chunk of the delta rule."""
ATOL = 1e-4

ROPE = {
    "rope_type": "default",
    "rope_theta": 10_000_000,
    "partial_rotary_factor": 0.5,
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}

TEXT: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
    "rope_parameters": ROPE,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DENSE = {**TEXT, "intermediate_size": 88}
MIXTURE = {
    **TEXT,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40,
}
VISION = {
    "depth": 1,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_heads": 2,
    "out_hidden_size": 64,
    "patch_size": 4,
    "num_position_embeddings": 16,
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("Qwen3_5", DENSE),
    "dense, tied, with biases, yarn and layers of its own order": (
        "Qwen3_5",
        {
            **DENSE,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "rope_parameters": {**YARN, "partial_rotary_factor": 0.5},
            "layer_types": ["full_attention", "linear_attention", "full_attention"],
            "num_hidden_layers": 3,
            "linear_conv_kernel_dim": 3,
            "linear_num_key_heads": 4,
        },
    ),
    "dense with a vision tower": ("Qwen3_5", {"text_config": DENSE, "vision_config": VISION}),
    "experts": ("Qwen3_5Moe", MIXTURE),
    "experts with a vision tower": ("Qwen3_5Moe", {"text_config": MIXTURE, "vision_config": VISION}),
}


def made(kind: str, settings: Mapping[str, Any]) -> Any:
    """A model of transformers with random weights."""
    import transformers

    if "text_config" in settings:
        config = getattr(transformers, f"{kind}Config")(
            **settings, image_token_id=150, video_token_id=151, attn_implementation="eager"
        )
        return getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    config = getattr(transformers, f"{kind}TextConfig")(**settings, attn_implementation="eager")
    return getattr(transformers, f"{kind}ForCausalLM")(config)


def write(case: str, path: Path) -> Reference:
    """The checkpoint of a case."""
    return write_reference(lambda: made(*CASES[case]), drawn_tokens(TOKENS), path)


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """Each case's checkpoint, made once: tests run backend by backend, and each has every case."""
    return cache(lambda case: write(case, tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(params=CASES)
def written(request: pytest.FixtureRequest, references: Callable[[str], Reference]) -> Reference:
    """The checkpoint of each case."""
    return references(request.param)


def test_logits_agree_with_transformers_however_they_are_computed(
    written: Reference, each_session: Session[Any]
) -> None:
    """Every position, in float32, to 1e-4: at once, cached, beside another sequence, after rolled back drafts."""
    written.check(QwenFamily(), each_session)


def test_bfloat16_computes_about_the_same(written: Reference) -> None:
    """Weights and rows in half the bytes; norms, positions, routing and recurrences stay in float32."""
    from tensorfold_backend_torch import TorchBackend

    session = TorchBackend().open(BackendSettings(device="cpu", dtype="bfloat16", threads=1))
    written.check_about(QwenFamily(), session)
    session.close()


def converted(checkpoint: FolderCheckpoint) -> ArrayTensors:
    """The tensors as MLX's converter leaves them: other names, stacked experts, turned convolutions, whole norms."""
    arrays: dict[str, NDArray[np.float32]] = {}
    stacks: dict[str, list[NDArray[np.float32]]] = {}
    for name in checkpoint.names():
        if ".visual." in name:
            continue
        values = checkpoint.read(name).f32()
        name = name.replace("model.language_model.", "model.")
        if ".experts." in name:
            before, after = name.split(".experts.")
            expert, module = after.split(".", 1)
            stacks.setdefault(f"{before}.switch_mlp.{module}", [values] * 8)[int(expert)] = values
            continue
        if name.endswith("conv1d.weight"):
            values = values.swapaxes(1, 2)
        elif name.endswith("norm.weight") and "linear_attn" not in name:
            values = values + np.float32(1)
        arrays[f"language_model.{name}"] = values
    return ArrayTensors(arrays | {f"language_model.{name}": np.stack(each) for name, each in stacks.items()})


def test_a_checkpoint_that_mlx_converted_computes_the_same(written: Reference, each_session: Session[Any]) -> None:
    """Its layout is known by the convolutions, and its norms are not added to again."""
    given: ModelConfig = written.checkpoint.config
    loaded = Loaded(QwenFamily(), given, converted(written.checkpoint), each_session)
    worst = np.abs(WAYS["at once"](loaded, written.tokens) - written.logits).max()
    assert worst < ATOL
