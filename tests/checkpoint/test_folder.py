"""Hugging Face folders: what is opened, and what is refused before a weight is read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.checkpoint.folder import INDEX, FolderCheckpoint
from tensorfold.errors import CheckpointDamaged, CheckpointError, CheckpointNotFound, CheckpointUnsupported
from tensorfold.testing.safetensors_writer import write_safetensors
from tensorfold.testing.tiny import TinyModel, tiny_weights, write_tiny


@pytest.fixture
def folder(tiny_folder: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(tiny_folder, tmp_path / "model"))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "sharded", shards=3)


def rewrite(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_configs_names_shapes_and_weights_are_those_that_were_written(tmp_path: Path) -> None:
    model = TinyModel(seed=3)
    checkpoint = FolderCheckpoint(write_tiny(tmp_path / "m", model))
    weights = tiny_weights(model)
    assert checkpoint.format == "safetensors"
    assert checkpoint.config.model_type == "llama"
    assert checkpoint.config.ids("eos_token_id", "generation")
    assert set(checkpoint.names()) == weights.keys()
    for name, values in weights.items():
        assert checkpoint.info(name).shape == values.shape
        assert np.array_equal(checkpoint.read(name).f32(), values)


def test_shards_read_as_one_file_does(tmp_path: Path, sharded: Path) -> None:
    whole, parts = FolderCheckpoint(write_tiny(tmp_path / "m")), FolderCheckpoint(sharded)
    assert set(whole.names()) == set(parts.names())
    for name in whole.names():
        assert np.array_equal(whole.read(name).f32(), parts.read(name).f32())


def test_numbered_shards_without_an_index_are_read_when_all_are_there(sharded: Path) -> None:
    names = set(FolderCheckpoint(sharded).names())
    (sharded / INDEX).unlink()
    assert set(FolderCheckpoint(sharded).names()) == names
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointUnsupported, match=f"no {INDEX}"):
        FolderCheckpoint(sharded).names()


def test_one_file_of_any_name_is_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    shutil.copy(folder / "weights.safetensors", folder / "consolidated.safetensors")
    assert FolderCheckpoint(folder).names()


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointDamaged, match=r"files are missing: model-00002-of-00003\.safetensors"):
        FolderCheckpoint(sharded).names()


@pytest.mark.parametrize(
    "file", ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "..\\model.safetensors", "..", "", 7, None]
)
def test_an_index_cannot_name_a_file_outside_the_folder(sharded: Path, file: object) -> None:
    (sharded.parent / "model.safetensors").write_bytes(b"")
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["lm_head.weight"] = file
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointDamaged, match=r"lm_head\.weight lies in .* not a file of this folder"):
        FolderCheckpoint(sharded).names()


def test_tensors_in_two_shards_are_named_all_at_once(sharded: Path) -> None:
    shutil.copy(sharded / "model-00001-of-00003.safetensors", sharded / "model-00002-of-00003.safetensors")
    with pytest.raises(
        CheckpointDamaged,
        match=r"(tensor \S+ of model-00002-of-00003\.safetensors is also in model-00001-of-00003\.safetensors(; )?){3,}",
    ):
        FolderCheckpoint(sharded).names()


def test_a_tensor_that_only_the_index_has_is_refused(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["extra.weight"] = "model-00001-of-00003.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointDamaged, match=r"tensor extra\.weight is not in model-00001"):
        FolderCheckpoint(sharded).names()


@pytest.mark.parametrize("text", ["[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"weight_map"'])
def test_an_index_without_a_weight_map_is_refused(sharded: Path, text: str) -> None:
    (sharded / INDEX).write_text(text)
    with pytest.raises(CheckpointDamaged, match=INDEX):
        FolderCheckpoint(sharded).names()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickle_files_are_refused_with_what_to_do(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(CheckpointUnsupported, match=rf"{name}.*can run any code.*safetensors"):
        FolderCheckpoint(folder).names()


def test_a_folder_without_weights_says_so(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointNotFound, match=r"no \*\.safetensors"):
        FolderCheckpoint(folder).names()


def test_several_files_that_nothing_ties_together_are_refused(folder: Path) -> None:
    for name in ("a", "b"):
        write_safetensors(folder / f"{name}.safetensors", {name: np.ones(1, np.float32)})
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointUnsupported, match=r"a\.safetensors, b\.safetensors"):
        FolderCheckpoint(folder).names()


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize(
    ("content", "offset"), [(b'{"a": 1,', 8), (b"\xff{}", 0), (b"[1]", 0), (b'{"a": ' + b"[" * 200_000, 0)]
)
def test_a_broken_json_file_names_itself_and_the_offset(folder: Path, name: str, content: bytes, offset: int) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointDamaged) as caught:
        assert FolderCheckpoint(folder).templates
    assert (caught.value.path, caught.value.offset) == (folder / name, offset)


def test_infinity_in_a_config_is_read(folder: Path) -> None:
    """Real configs have it (`time_step_limit`), though JSON has not."""
    (folder / "generation_config.json").write_text('{"limit": [0.0, Infinity]}')
    assert FolderCheckpoint(folder).config.generation["limit"] == [0.0, float("inf")]


def test_a_folder_that_is_no_checkpoint_tells_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "model.gguf").touch()
    with pytest.raises(CheckpointNotFound, match=r"no config\.json.*model\.gguf, notes\.txt.*give its path"):
        FolderCheckpoint(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_named(folder: Path) -> None:
    (folder / "config.json").chmod(0)
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read: Permission denied"):
        FolderCheckpoint(folder)


def test_the_identity_changes_with_the_files_and_not_with_the_place(folder: Path, tmp_path: Path) -> None:
    first = FolderCheckpoint(folder).identity
    assert first == FolderCheckpoint(folder).identity
    moved = Path(shutil.move(folder, tmp_path / "moved"))
    assert FolderCheckpoint(moved).identity == first
    status = (moved / "model.safetensors").stat()
    os.utime(moved / "model.safetensors", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    touched = FolderCheckpoint(moved).identity
    rewrite(moved / "config.json", rope_theta=5.0)
    assert len({first, touched, FolderCheckpoint(moved).identity}) == 3
