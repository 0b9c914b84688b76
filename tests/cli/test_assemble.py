"""What a start wires together, and what it says of it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from tensorfold.cli.assemble import Assembled, assemble
from tensorfold.cli.early import take_early
from tensorfold.cli.startup import ready_block
from tensorfold.contracts.states import TableKey
from tensorfold.errors import CheckpointNotFound, CheckpointUnsupported, ConfigError
from tensorfold.testing.declared_checkpoint import (
    declared_arrays,
    declared_drafter_arrays,
    write_declared,
    write_declared_drafter,
)
from tensorfold.testing.family_configs import DRAFTER_CONFIGS, FAMILY_CONFIGS
from tensorfold.testing.gguf_drafter import write_assistant_gguf
from tensorfold.testing.quantized import float8, mlx_affine
from tensorfold.testing.safetensors_writer import Stored, write_stored
from tensorfold.testing.tiny import write_texts
from tensorfold.testing.tiny_gguf import write_tiny_gguf
from tensorfold_model_gemma.family import GemmaFamily
from tensorfold_model_glm.family import GlmFamily
from tensorfold_model_llama.family import LlamaFamily
from tensorfold_model_qwen.family import QwenFamily

pytestmark = pytest.mark.torch


class Silent:
    """Stages that nobody watches."""

    def stage(self, text: str) -> None: ...

    def weights(self, done: int, total: int) -> None: ...


def assembled(folder: Path, backend: str = "torch", **settings: Any) -> Assembled:
    launch, _ = take_early(["--backend", backend], {})
    config = launch.config({("", "device"): "cpu"})
    config = dataclasses.replace(
        config, model=str(folder), parallel=2, state_memory=0.01, check_rows="off", spill_gib=0.0, **settings
    )
    return assemble(config, launch.plugins, Silent())


def block(ready: Assembled) -> dict[str, str]:
    lines = ready_block(ready, "http://localhost", ()).splitlines()
    return {line.split(None, 1)[0]: line.split(None, 1)[1] for line in lines}


@pytest.mark.parametrize(
    ("family", "kind"), [(QwenFamily(), "qwen3_5"), (GlmFamily(), "glm_moe_dsa")], ids=["qwen", "glm"]
)
def test_no_memory_is_planned_for_a_draft_head_that_was_dropped(tmp_path: Path, family: Any, kind: str) -> None:
    """The config still tells of it; its states' pools are not made."""
    whole = assembled(write_declared(tmp_path / "whole", family, FAMILY_CONFIGS[kind]))
    dropped = assembled(write_declared(tmp_path / "dropped", family, FAMILY_CONFIGS[kind], draft=False))
    assert TableKey("draft", None) in whole.memory.pages
    assert TableKey("main", None) in dropped.memory.pages
    assert not [key for key in dropped.memory.pages if key.group == "draft"]


def test_towers_that_are_left_are_no_capability_of_the_server(tmp_path: Path) -> None:
    """A checkpoint can see; its server takes no images, and says nothing else."""
    config = {**FAMILY_CONFIGS["qwen3_5"], "vision_config": {"model_type": "qwen3_5"}}
    ready = assembled(write_declared(tmp_path, QwenFamily(), config))
    assert ready.model.capabilities == {"tools", "thinking"}
    assert "vision tower left" in block(ready)["family"]


def test_what_is_expanded_on_load_is_said(tmp_path: Path) -> None:
    """Integer codes and small floats alike, where the backend has no kernel for them."""
    config = FAMILY_CONFIGS["llama"]
    arrays = declared_arrays(LlamaFamily(), config)
    quantization: dict[str, dict[str, Any]] = {
        "plain": {},
        "mlx": {"quantization": {"bits": 4, "group_size": 32}},
        "fp8": {"quantization_config": {"quant_method": "fp8"}},
    }
    said: dict[str, str] = {}
    for name, settings in quantization.items():
        stored: dict[str, Stored] = {}
        for tensor, values in arrays.items():
            if name == "plain" or "mlp" not in tensor:
                stored[tensor] = Stored("F32", values)
            elif name == "mlx":
                stored |= mlx_affine(tensor.removesuffix(".weight"), values, bits=4, group=32).stored
            else:
                stored |= float8(tensor, values, block=None).stored
        write_texts(tmp_path / name, {**config, **settings})
        write_stored(tmp_path / name / "model.safetensors", stored)
        said[name] = block(assembled(tmp_path / name))["weights"]
        said[f"{name} on kernels"] = block(assembled(tmp_path / name, "cpu"))["weights"]
    assert said["plain"].endswith("stored: F32 (21 tensors)")
    assert "4-bit groups of 32 (6)" in said["mlx"]
    assert "FP8 (6)" in said["fp8"]
    assert all(said[name].endswith("6 matrices are expanded to float32 on load") for name in ("mlx", "fp8"))
    # A backend with kernels for integer codes keeps them, and expands small floats all the same.
    assert "expanded" not in said["mlx on kernels"]
    assert "6 matrices are expanded" in said["fp8 on kernels"]


def gemma_and_drafter(path: Path) -> tuple[Path, Path]:
    """A Gemma 4 and a drafter for it, with random weights."""
    family = GemmaFamily()
    model = write_declared(path / "gemma", family, FAMILY_CONFIGS["gemma4"])
    return model, write_declared_drafter(path / "drafter", family, DRAFTER_CONFIGS["gemma4"])


def test_a_drafter_of_its_own_checkpoint_is_read_and_told_of(tmp_path: Path) -> None:
    """Named with `--draft-model`; it takes no states."""
    model, drafter = gemma_and_drafter(tmp_path)
    ready, alone = assembled(model, draft_model=str(drafter)), assembled(model)
    assert block(ready)["drafter"] == str(drafter)
    assert "drafter" not in block(alone)
    assert ready.memory.pages == alone.memory.pages


def test_a_drafter_may_be_a_gguf_file(tmp_path: Path) -> None:
    """For a model in a folder; alone it is refused with the flag's name, and for another model with the key."""
    model, _ = gemma_and_drafter(tmp_path)
    family, config = GemmaFamily(), DRAFTER_CONFIGS["gemma4"]
    arrays = declared_drafter_arrays(family, config)
    file = write_assistant_gguf(tmp_path / "drafter.gguf", config, arrays, "Q8_0")
    assert block(assembled(model, draft_model=str(file)))["drafter"] == str(file)
    with pytest.raises(CheckpointUnsupported, match=r"drafter\.gguf: .*give this checkpoint as --draft-model"):
        assembled(file)
    other = write_assistant_gguf(tmp_path / "other.gguf", config, arrays, metadata={"attention.sliding_window": 8})
    with pytest.raises(CheckpointUnsupported, match=r"other\.gguf: text_config\.sliding_window is 8"):
        assembled(model, draft_model=str(other))


def test_a_drafter_is_named_as_a_model_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`ORG/NAME`, from the Hub's cache."""
    model, drafter = gemma_and_drafter(tmp_path)
    hub = tmp_path / "hub" / "models--org--drafter"
    (hub / "refs").mkdir(parents=True)
    (hub / "refs" / "main").write_text("c" * 40)
    shutil.copytree(drafter, hub / "snapshots" / ("c" * 40))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    ready = assembled(model, draft_model="org/drafter")
    assert block(ready)["drafter"] == str(hub / "snapshots" / ("c" * 40))


def test_a_drafter_that_cannot_be_meant_is_refused_by_name(tmp_path: Path) -> None:
    """For a family without drafters, with drafts off, of another kind, or where there is none."""
    model, drafter = gemma_and_drafter(tmp_path)
    llama = write_declared(tmp_path / "llama", LlamaFamily(), FAMILY_CONFIGS["llama"])
    with pytest.raises(CheckpointUnsupported, match="the llama family has no drafters"):
        assembled(llama, draft_model=str(drafter))
    with pytest.raises(CheckpointUnsupported, match="what drafts for a Gemma 4 is 'gemma4_assistant'"):
        assembled(model, draft_model=str(llama))
    with pytest.raises(ConfigError, match="drafts are off"):
        assembled(model, draft_model=str(drafter), drafts="off")
    with pytest.raises(CheckpointNotFound, match="nowhere"):
        assembled(model, draft_model=str(tmp_path / "nowhere"))
    with pytest.raises(CheckpointUnsupported, match=r"drafter\.gguf: general\.architecture is 'llama'"):
        assembled(model, draft_model=str(write_tiny_gguf(tmp_path / "drafter.gguf")))
    with pytest.raises(CheckpointUnsupported, match="--draft-model"):
        assembled(drafter)
