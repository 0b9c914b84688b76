"""The Nemotron family computes what transformers computes, on tiny random checkpoints that transformers wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
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
from tensorfold.testing.transformers_logits import Reference, drawn_tokens, reference_logits, shake, write_reference
from tensorfold.testing.ways import WAYS, Loaded
from tensorfold_model_nemotron.family import NemotronFamily

pytestmark = pytest.mark.torch

TOKENS = 72
"""More than a page, and than several chunks of the scan."""
ATOL = 1e-4

SMALL: dict[str, Any] = {
    "vocab_size": 160,
    "hidden_size": 64,
    "intermediate_size": 72,
    "hybrid_override_pattern": "MEM*E-",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "mamba_num_heads": 6,
    "mamba_head_dim": 12,
    "n_groups": 2,
    "ssm_state_size": 10,
    "conv_kernel": 4,
    "chunk_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 24,
    "moe_shared_expert_intermediate_size": 40,
    "routed_scaling_factor": 2.5,
    "max_position_embeddings": 256,
    "initializer_range": 0.1,
    "rescale_prenorm_residual": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

CASES: dict[str, dict[str, Any]] = {
    "every kind of block": SMALL,
    "biases, and no bias of the convolution": {
        **SMALL,
        "use_bias": True,
        "mlp_bias": True,
        "use_conv_bias": False,
        "conv_kernel": 3,
    },
    "latent experts in groups, without renormalization": {
        **SMALL,
        "moe_latent_size": 28,
        "n_group": 4,
        "topk_group": 2,
        "norm_topk_prob": False,
    },
    "attention alone": {**SMALL, "hybrid_override_pattern": "*-*-", "num_key_value_heads": 4},
}


def made(settings: dict[str, Any]) -> Any:
    """A model of transformers with random weights."""
    import transformers

    eager: dict[str, Any] = {**settings, "attn_implementation": "eager"}
    return transformers.NemotronHForCausalLM(transformers.NemotronHConfig(**eager))


def shaken(settings: dict[str, Any]) -> Any:
    """The same with weights that all matter, to change them further."""
    import torch

    torch.manual_seed(0)
    model = made(settings).eval().float()
    shake(model)
    return model


def write(settings: dict[str, Any], path: Path) -> Reference:
    """A checkpoint with these settings."""
    return write_reference(lambda: made(settings), drawn_tokens(TOKENS), path)


@pytest.fixture(scope="session")
def references(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """Each case's checkpoint, made once: tests run backend by backend, and each has every case."""
    return cache(lambda case: write(CASES[case], tmp_path_factory.mktemp("checkpoint")))


@pytest.fixture(params=CASES)
def written(request: pytest.FixtureRequest, references: Callable[[str], Reference]) -> Reference:
    """The checkpoint of each case."""
    return references(request.param)


def test_logits_agree_with_transformers_however_they_are_computed(
    written: Reference, each_session: Session[Any]
) -> None:
    """Every position, in float32, to 1e-4: at once, cached, beside another sequence, after rolled back drafts."""
    written.check(NemotronFamily(), each_session)


def test_bfloat16_computes_about_the_same(written: Reference) -> None:
    """Weights and rows in half the bytes; norms, positions, routing and recurrences stay in float32."""
    from tensorfold_backend_torch import TorchBackend

    session = TorchBackend().open(BackendSettings(device="cpu", dtype="bfloat16", threads=1))
    written.check_about(NemotronFamily(), session)
    session.close()


def test_a_config_in_an_older_spelling_computes_the_same(tmp_path: Path, each_session: Session[Any]) -> None:
    """Kinds of layers as a pattern or by their former names."""
    small = write(SMALL, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["layers_block_type"]
    pattern = {"hybrid_override_pattern": "MEM*E-", "num_hidden_layers": 6}
    names = {"layers_block_type": ["mamba", "moe", "mamba", "attention", "moe", "mlp"]}
    for spelling in (pattern, names):
        (tmp_path / "config.json").write_text(json.dumps({**config, **spelling}))
        got = WAYS["at once"](small.loaded(NemotronFamily(), each_session), small.tokens)
        assert np.abs(got - small.logits).max() < ATOL


def converted(checkpoint: FolderCheckpoint) -> ArrayTensors:
    """The tensors as MLX's converter leaves them: stacked experts under other names, turned convolutions."""
    arrays: dict[str, NDArray[np.float32]] = {}
    stacks: dict[str, list[NDArray[np.float32]]] = {}
    for name in checkpoint.names():
        values = checkpoint.read(name).f32()
        if ".experts." in name:
            before, after = name.split(".experts.")
            expert, module, _ = after.split(".")
            stack = f"{before}.switch_mlp.{'fc1' if module == 'up_proj' else 'fc2'}.weight"
            stacks.setdefault(stack, [values] * 8)[int(expert)] = values
            continue
        arrays[name] = values.swapaxes(1, 2) if name.endswith("conv1d.weight") else values
    return ArrayTensors(arrays | {name: np.stack(each) for name, each in stacks.items()})


def test_a_checkpoint_that_mlx_converted_computes_the_same(written: Reference, each_session: Session[Any]) -> None:
    """By the names and shapes of its tensors."""
    checkpoint = written.checkpoint
    model = Loaded(NemotronFamily(), checkpoint.config, converted(checkpoint), each_session)
    assert np.abs(WAYS["at once"](model, written.tokens) - written.logits).max() < ATOL


# ---- how small a step may be ---------------------------------------------------------------------------------


def cut_at(model: Any, low: float) -> None:
    """Let transformers cut steps below so much, where it cuts at all."""
    for layer in model.model.layers:
        if layer.block_type == "linear_attention":
            layer.mixer.time_step_limit = (low, math.inf)


def one_by_one(model: Any, tokens: Iterable[int]) -> NDArray[np.float32]:
    """transformers', token by token over its cache."""
    import torch

    rows: list[NDArray[np.float32]] = []
    cache: Any = None
    with torch.inference_mode():
        for token in tokens:
            output = model(torch.tensor([[token]]), cache=cache, use_cache=True)
            cache = output.cache
            rows.append(output.logits[0, 0].numpy())
    return np.stack(rows)


def test_small_steps_are_not_cut_since_transformers_cuts_them_in_chunks_only(
    tmp_path: Path, each_session: Session[Any]
) -> None:
    """With steps below `time_step_min`, transformers' prompts and replies disagree. `time_step_min` is the range of
    the first biases; the bound that Mamba-2 has, `time_step_limit`, lets every step pass. Without the cut,
    transformers agrees with itself and with us."""
    import torch

    model, tokens = shaken({**SMALL, "hybrid_override_pattern": "MM*M"}), drawn_tokens(TOKENS)
    with torch.inference_mode():
        for name, each in model.state_dict().items():
            if name.endswith("dt_bias"):
                each.fill_(-9.0)
            elif name.endswith("in_proj.weight"):
                each.mul_(3.0)
    model.save_pretrained(tmp_path)
    assert np.abs(reference_logits(model, tokens) - one_by_one(model, tokens)).max() > 5 * ATOL
    cut_at(model, 0.0)
    expected = reference_logits(model, tokens)
    assert np.abs(expected - one_by_one(model, tokens)).max() < ATOL
    ours = Reference(tmp_path, tokens, expected).loaded(NemotronFamily(), each_session)
    for name, way in WAYS.items():
        assert np.abs(way(ours, tokens) - expected).max() < ATOL, name


def bounded(path: Path, session: Session[Any], *bounds: float) -> Loaded:
    checkpoint = FolderCheckpoint(path)
    values = {**checkpoint.config.values, "time_step_limit": list(bounds)}
    return Loaded(NemotronFamily(), ModelConfig(values, {}, "config.json"), checkpoint, session)


def biased(model: Any, bias: float) -> None:
    """Give every step this bias."""
    import torch

    with torch.inference_mode():
        for name, each in model.state_dict().items():
            if name.endswith("dt_bias"):
                each.fill_(bias)


def test_a_lower_bound_of_steps_that_the_config_has_is_kept(tmp_path: Path, each_session: Session[Any]) -> None:
    """As transformers' chunks keep theirs."""
    model, tokens = shaken(SMALL), drawn_tokens(TOKENS)
    model.save_pretrained(tmp_path)
    free = reference_logits(model, tokens)
    cut_at(model, 0.5)
    expected = reference_logits(model, tokens)
    assert np.abs(expected - free).max() > 100 * ATOL
    for name, way in WAYS.items():
        assert np.abs(way(bounded(tmp_path, each_session, 0.5, math.inf), tokens) - expected).max() < ATOL, name


def test_a_higher_bound_of_steps_that_the_config_has_is_kept(tmp_path: Path, each_session: Session[Any]) -> None:
    """Large steps that are all lowered to the bound are as small ones that transformers raises to it."""
    model, tokens = shaken(SMALL), drawn_tokens(TOKENS)
    biased(model, 20.0)
    model.save_pretrained(tmp_path)
    biased(model, -20.0)
    cut_at(model, 0.25)
    expected = reference_logits(model, tokens)
    for name, way in WAYS.items():
        assert np.abs(way(bounded(tmp_path, each_session, 0.0, 0.25), tokens) - expected).max() < ATOL, name
