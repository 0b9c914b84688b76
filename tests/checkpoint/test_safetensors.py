"""Safetensors files: what is read, and what a header may not say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tensorfold.checkpoint.safetensors import MAX_HEADER, SafetensorsFile
from tensorfold.errors import CheckpointDamaged, CheckpointNotFound, CheckpointUnsupported
from tensorfold.testing.safetensors_writer import bfloat16, write_safetensors


def write(path: Path, header: Mapping[str, Any] | bytes, data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: str, shape: list[Any], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_a_file_of_the_formats_own_library_reads_back_in_every_type(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "f32": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
        "f16": np.arange(4, dtype=np.float16) / 3,
        "i64": np.array([-1, 2**40]),
        "i32": np.array([[7]], np.int32),
        "u8": np.arange(5, dtype=np.uint8),
        "empty": np.empty((0, 3), np.float32),
    }
    save_file(arrays, tmp_path / "a.safetensors", metadata={"format": "np"})
    file = SafetensorsFile(tmp_path / "a.safetensors")
    assert set(file.names()) == arrays.keys()
    for name, expected in arrays.items():
        read = file.read(name)
        assert np.array_equal(read.values, expected)
        assert file.info(name).shape == expected.shape == read.shape
        assert file.info(name).stored_bytes == expected.nbytes


def test_bfloat16_is_kept_as_its_bits_and_widened_exactly(tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, 3.140625, 1e30], np.float32)
    write_safetensors(tmp_path / "a.safetensors", {"w": values}, "BF16")
    read = SafetensorsFile(tmp_path / "a.safetensors").read("w")
    assert read.type == "bf16"
    assert read.values.dtype == np.uint16
    assert np.array_equal(read.f32(), (bfloat16(values).astype(np.uint32) << 16).view(np.float32))
    assert np.array_equal(read.f32()[:3], values[:3])


def test_a_tensor_is_a_read_only_view_of_the_file(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "a.safetensors", {"w": np.ones(4, np.float32)})
    values = SafetensorsFile(tmp_path / "a.safetensors").read("w").values
    assert not values.flags.writeable
    assert not values.flags.owndata


def test_a_type_that_is_not_read_is_refused_by_name_when_it_is_asked_for(tmp_path: Path) -> None:
    header = {"a": entry("F8_E4M3", [4], 0, 4), "b": entry("Q9_NEW", [3], 4, 9)}
    file = SafetensorsFile(write(tmp_path / "a.safetensors", header, bytes(9)))
    for name, kind in (("a", "F8_E4M3"), ("b", "Q9_NEW")):
        with pytest.raises(CheckpointUnsupported, match=rf"a\.safetensors: tensor {name} has type {kind}"):
            file.read(name)


@pytest.mark.parametrize(
    ("content", "offset", "problem"),
    [
        (b"", 0, "empty"),
        (b"\x01\x00", 0, "the header's length takes 8 bytes"),
        ((99).to_bytes(8, "little") + b"{}", 8, "the header takes 99 bytes, and the file ends after 2"),
        ((MAX_HEADER + 1).to_bytes(8, "little"), 0, "at most 100000000"),
        ((2**64 - 1).to_bytes(8, "little"), 0, "at most 100000000"),
        ((2).to_bytes(8, "little") + b"\xff\xfe", 8, "not UTF-8"),
        ((2).to_bytes(8, "little") + b"[]", 8, "must be an object"),
        ((7).to_bytes(8, "little") + b'{"a": }', 14, "not JSON"),
    ],
)
def test_a_broken_header_names_the_file_and_the_offset(
    tmp_path: Path, content: bytes, offset: int, problem: str
) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(CheckpointDamaged, match=problem) as caught:
        SafetensorsFile(tmp_path / "a.safetensors")
    assert (caught.value.path, caught.value.offset) == (tmp_path / "a.safetensors", offset)


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ({"w": entry("F32", [2], 0, 9)}, "lies at 0 to 9"),
        ({"w": entry("F32", [2], 8, 0)}, "lies at 8 to 0"),
        ({"w": entry("F32", [3], 0, 8)}, "has 8 bytes, and F32"),
        ({"w": entry("F32", [-2], 0, 8)}, "must have a dtype"),
        ({"w": entry("F32", [True], 0, 8)}, "must have a dtype"),
        ({"w": entry("F32", [2.0], 0, 8)}, "must have a dtype"),
        ({"w": entry("F32", [2**60, 2**60], 0, 8)}, "must have a dtype"),
        ({"w": entry("F32", [2**40, 2**40, 0], 0, 0)}, "more elements than any file"),
        ({"w": entry("F32", [1] * 40, 0, 4)}, "40 dimensions"),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}}, "must have a dtype"),
        ({"w": {"dtype": 7, "shape": [2], "data_offsets": [0, 8]}}, "must have a dtype"),
        ({"w": "F32"}, "must have a dtype"),
        ({"v": entry("F32", [1], 0, 4), "w": entry("F32", [2], 0, 8)}, "overlap"),
        ({"w": entry("F32", [1], 4, 8)}, "4 unclaimed bytes"),
        ({"w": entry("F32", [1], 0, 4)}, "4 bytes after the last tensor"),
        ({}, "8 bytes after the last tensor"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(tmp_path: Path, header: dict[str, Any], problem: str) -> None:
    with pytest.raises(CheckpointDamaged, match=problem):
        SafetensorsFile(write(tmp_path / "a.safetensors", header, bytes(8)))


def test_a_tensor_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    twice = b'{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    with pytest.raises(CheckpointDamaged, match="'w' is said twice"):
        SafetensorsFile(write(tmp_path / "a.safetensors", twice))


def test_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointDamaged, match="nested too deeply"):
        SafetensorsFile(write(tmp_path / "a.safetensors", b"[" * 200_000))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match=r"gone\.safetensors cannot be read: No such file"):
        SafetensorsFile(tmp_path / "gone.safetensors")
