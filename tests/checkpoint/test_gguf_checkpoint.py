"""GGUF files as Hugging Face checkpoints: names, config, row order, parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.checkpoint.gguf import GgufCheckpoint, GgufFiles
from tensorfold.contracts.family import GgufArchitecture, GgufTensor
from tensorfold.contracts.tensors import Affine
from tensorfold.errors import CheckpointDamaged, CheckpointNotFound, CheckpointUnsupported
from tensorfold.testing.gguf_writer import GgufItem, encode_tensor, write_gguf
from tensorfold.testing.tiny import TINY_MODELS, TinyModel, write_tiny
from tensorfold.testing.tiny_gguf import write_tiny_gguf
from tensorfold_model_llama.gguf import ARCHITECTURES

LLAMA = ARCHITECTURES[0]


def opened(path: Path, rules: GgufArchitecture | None = None) -> GgufCheckpoint:
    files = GgufFiles(path)
    return GgufCheckpoint(
        files, rules or next(each for each in ARCHITECTURES if each.architecture == files.architecture)
    )


@pytest.mark.parametrize("name", TINY_MODELS)
def test_a_gguf_file_reads_as_the_folder_that_it_was_made_from(tmp_path: Path, name: str) -> None:
    """Names, values and, for llama, the rows of queries and keys in half-split order again."""
    model = TINY_MODELS[name]
    folder = FolderCheckpoint(write_tiny(tmp_path / "folder", model))
    gguf = opened(write_tiny_gguf(tmp_path / "a.gguf", model))
    assert set(gguf.names()) == set(folder.names())
    for each in folder.names():
        assert gguf.info(each).shape == folder.info(each).shape
        assert np.array_equal(gguf.read(each).f32(), folder.read(each).f32())
    for key in ("hidden_size", "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "tie_word_embeddings"):
        assert gguf.config.values[key] == folder.config.values[key]
    assert gguf.config.ids("eos_token_id", "generation") == tuple(
        sorted(folder.config.ids("eos_token_id", "generation"))
    )
    assert gguf.config.generation["temperature"] == folder.config.generation["temperature"]
    assert gguf.templates.default == folder.templates.default


def test_rows_of_a_quantized_matrix_are_reordered_with_their_scales(tmp_path: Path) -> None:
    model = TinyModel()
    plain = opened(write_tiny_gguf(tmp_path / "a.gguf", model))
    packed = opened(write_tiny_gguf(tmp_path / "b.gguf", model, type="Q8_0"))
    name = "model.layers.1.self_attn.q_proj.weight"
    tensor = packed.read(name)
    assert isinstance(tensor, Affine)
    assert np.abs(tensor.f32() - plain.read(name).f32()).max() < 0.01
    assert packed.info(name).kind == "Q8_0"


def test_a_tensor_that_the_rules_do_not_know_keeps_its_name(tmp_path: Path) -> None:
    ones = encode_tensor(np.ones((2, 2), np.float32), "F32")
    rules = GgufArchitecture("a", {}, {"blk.{i}.x.weight": GgufTensor("layers.{i}.x")}, ignored=frozenset({"skip"}))
    path = write_gguf(
        tmp_path / "a.gguf", {}, {"blk.10.x.weight": ones, "odd": ones, "skip": ones, "blk.01.x.weight": ones}
    )
    assert set(opened(path, rules).names()) == {"layers.10.x", "odd", "blk.01.x.weight"}


def test_two_tensors_of_one_name_are_refused(tmp_path: Path) -> None:
    ones = encode_tensor(np.ones((2, 2), np.float32), "F32")
    rules = GgufArchitecture("a", {}, {"x": GgufTensor("same"), "y": GgufTensor("same")})
    with pytest.raises(CheckpointDamaged, match="y and x are both same"):
        opened(write_gguf(tmp_path / "a.gguf", {}, {"x": ones, "y": ones}), rules).names()


def test_values_are_shifted_where_the_rules_say_so(tmp_path: Path) -> None:
    """A zero-centred norm is stored with 1 added."""
    rules = GgufArchitecture("a", {}, {"norm": GgufTensor("norm", add=-1.0), "w": GgufTensor("w", add=-1.0)})
    weights = {
        "norm": encode_tensor(np.array([1.5, 0.25], np.float32), "F32"),
        "w": encode_tensor(np.ones((2, 32), np.float32), "Q8_0"),
    }
    checkpoint = opened(write_gguf(tmp_path / "a.gguf", {}, weights), rules)
    assert checkpoint.read("norm").f32().tolist() == [0.5, -0.75]
    with pytest.raises(CheckpointUnsupported, match="tensor w is quantized"):
        checkpoint.read("w")


def test_rows_that_the_heads_do_not_divide_are_refused(tmp_path: Path) -> None:
    rules = GgufArchitecture("a", {}, {"q": GgufTensor("q", unpermute="heads")}, fixed={"heads": 4})
    path = write_gguf(tmp_path / "a.gguf", {}, {"q": encode_tensor(np.ones((12, 2), np.float32), "F32")})
    with pytest.raises(CheckpointDamaged, match="tensor q has 12 rows for 4 heads"):
        opened(path, rules).read("q")


def test_keys_with_dots_stand_in_nested_objects_and_missing_ones_are_left_out(tmp_path: Path) -> None:
    rules = GgufArchitecture("a", {"rope.factor": "{arch}.f", "rope.kind": "{arch}.k", "gone": "{arch}.g"}, {})
    values = opened(write_gguf(tmp_path / "a.gguf", {"a.f": 2.0, "a.k": "yarn"}, {}), rules).config.values
    assert values == {"rope": {"factor": 2.0, "kind": "yarn"}, "tie_word_embeddings": True}


# ---- parts -------------------------------------------------------------------------------------------------


def parts(folder: Path, count: int = 3, **changes: GgufItem) -> list[Path]:
    """A checkpoint in parts, one tensor each."""
    paths: list[Path] = []
    for number in range(count):
        metadata: dict[str, GgufItem] = {"split.no": number, "split.count": count, "split.tensors.count": count}
        ones = encode_tensor(np.full((2, 2), number, np.float32), "F32")
        path = folder / f"m-{number + 1:05}-of-{count:05}.gguf"
        paths.append(write_gguf(path, metadata | changes, {f"t{number}": ones}))
    return paths


RULES = GgufArchitecture("a", {}, {})


def test_parts_are_read_as_one(tmp_path: Path) -> None:
    checkpoint = opened(parts(tmp_path)[0], RULES)
    assert set(checkpoint.names()) == {"t0", "t1", "t2"}
    assert checkpoint.read("t2").f32().tolist() == [[2, 2], [2, 2]]


def test_a_later_part_names_the_first(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnsupported, match=r"not the first part: give m-00001-of-00003\.gguf"):
        GgufFiles(parts(tmp_path)[1])


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first, second, _ = parts(tmp_path)
    second.unlink()
    with pytest.raises(CheckpointNotFound, match=r"m-00002-of-00003\.gguf is missing"):
        GgufFiles(first)


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    first, second, third = parts(tmp_path)
    third.write_bytes(second.read_bytes())
    with pytest.raises(CheckpointDamaged, match="part 3 of 3"):
        GgufFiles(first)
    with pytest.raises(CheckpointDamaged, match="hold 3 tensors, and should hold 4"):
        GgufFiles(parts(tmp_path, **{"split.tensors.count": 4})[0])


def test_a_part_of_another_name_is_refused(tmp_path: Path) -> None:
    moved = parts(tmp_path)[0].rename(tmp_path / "model.gguf")
    with pytest.raises(CheckpointUnsupported, match="is one of 3 parts, which are read by their names"):
        GgufFiles(moved)


def test_the_identity_changes_with_the_file_alone(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "a.gguf")
    first = opened(path).identity
    assert first == opened(path).identity
    write_tiny_gguf(path, TinyModel(window=64))
    assert opened(path).identity != first
