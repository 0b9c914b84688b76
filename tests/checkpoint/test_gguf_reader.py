"""GGUF headers: what is read, and what a file may not say."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tensorfold.checkpoint.gguf_reader import GgufFile
from tensorfold.errors import CheckpointDamaged, CheckpointUnsupported
from tensorfold.testing.gguf_writer import GgufBlob, encode_tensor, gguf_bytes, write_gguf

ONES = encode_tensor(np.ones((2, 32), np.float32), "F32")


def test_a_file_of_the_formats_own_library_is_read(tmp_path: Path) -> None:
    """Every kind of metadata value, and shapes in the usual order."""
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_uint8("u8", 200)
    writer.add_int16("i16", -5)
    writer.add_uint64("u64", 2**63 + 1)
    writer.add_float32("f32", 1e-5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "Grüße")
    writer.add_array("texts", ["a", "", "漢"])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("floats", [0.5, 1.5])
    writer.add_tensor("w", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("v", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = GgufFile(tmp_path / "a.gguf")
    expected: dict[str, Any] = {
        "general.architecture": "llama",
        "u8": 200,
        "i16": -5,
        "u64": 2**63 + 1,
        "f32": 1e-5,
        "f64": 0.1,
        "yes": True,
        "text": "Grüße",
        "texts": ["a", "", "漢"],
        "numbers": [1, -2, 3],
        "floats": [0.5, 1.5],
    }
    keys = file.metadata.keys()
    assert {key: file.metadata.plain(key) for key in keys} == expected
    assert file.tensors["w"].shape == (2, 3)
    assert np.array_equal(file.read("w").f32(), np.arange(6, dtype=np.float32).reshape(2, 3))
    assert np.array_equal(file.read("v").f32(), np.arange(5))


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [8, 32, 4096])
def test_versions_and_alignments_are_read(tmp_path: Path, version: int, alignment: int) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_bytes({"a": "b"}, {"x": ONES, "y": ONES}, alignment=alignment, version=version))
    file = GgufFile(path)
    assert file.tensors["y"].offset % alignment == 0
    assert np.array_equal(file.read("y").f32(), np.ones((2, 32)))


@pytest.mark.parametrize(
    ("start", "error", "problem"),
    [
        (b"GGUF", CheckpointDamaged, "at byte 0: the header takes 24 bytes, and the file ends after 4"),
        (b"PK\x03\x04" + bytes(20), CheckpointDamaged, "at byte 0: a GGUF file begins with"),
        (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), CheckpointUnsupported, "version 0x1"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), CheckpointUnsupported, "big-endian"),
    ],
)
def test_what_is_no_gguf_file_of_a_known_version_is_refused(
    tmp_path: Path, start: bytes, error: type[Exception], problem: str
) -> None:
    (tmp_path / "a.gguf").write_bytes(start)
    with pytest.raises(error, match=problem):
        GgufFile(tmp_path / "a.gguf")


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_file_names_itself_and_the_offset(tiny_gguf: Path, tmp_path: Path, share: float) -> None:
    content = tiny_gguf.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointDamaged, match=r"cut\.gguf: at byte \d+: ") as caught:
        GgufFile(path)
    assert caught.value.path == path
    assert 0 <= caught.value.offset <= len(content)


def test_names_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    content = gguf_bytes({"aa": 1, "ab": 2}, {"xx": ONES, "xy": ONES})
    for old, new, problem in ((b"ab", b"aa", "metadata key aa"), (b"xy", b"xx", "tensor xx")):
        (tmp_path / "a.gguf").write_bytes(content.replace(old, new))
        with pytest.raises(CheckpointDamaged, match=f"{problem} is there twice"):
            GgufFile(tmp_path / "a.gguf")


@pytest.mark.parametrize(
    ("blob", "error", "problem"),
    [
        (GgufBlob(99, (2, 32), bytes(256)), CheckpointUnsupported, "tensor w has type number 99"),
        (GgufBlob(8, (2, 33), bytes(256)), CheckpointDamaged, "rows of 33, which is no multiple of 32"),
        (GgufBlob(0, (1, 1, 1, 1, 4), bytes(16)), CheckpointDamaged, "5 dimensions"),
        (GgufBlob(0, (0, 4), b""), CheckpointDamaged, "dimension of 0"),
        (GgufBlob(0, (2**40, 2**40), bytes(16)), CheckpointDamaged, "not aligned to 32 and in the file"),
        (GgufBlob(0, (1000, 1000), bytes(16)), CheckpointDamaged, "not aligned to 32 and in the file"),
    ],
)
def test_a_tensor_that_cannot_be_is_refused(
    tmp_path: Path, blob: GgufBlob, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        GgufFile(write_gguf(tmp_path / "a.gguf", {}, {"w": blob}))


def test_tensors_that_overlap_are_refused(tmp_path: Path) -> None:
    content = bytearray(gguf_bytes({}, {"x": ONES, "y": ONES}))
    # The offset of y is the last number of the header: 256, aligned to 32.
    at = content.rindex((256).to_bytes(8, "little"))
    content[at : at + 8] = (32).to_bytes(8, "little")
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(CheckpointDamaged, match="x and y overlap"):
        GgufFile(tmp_path / "a.gguf")


def test_an_offset_that_is_not_aligned_is_refused(tmp_path: Path) -> None:
    content = bytearray(gguf_bytes({}, {"x": ONES, "y": ONES}))
    at = content.rindex((256).to_bytes(8, "little"))
    content[at : at + 8] = (257).to_bytes(8, "little")
    (tmp_path / "a.gguf").write_bytes(content)
    with pytest.raises(CheckpointDamaged, match="not aligned to 32"):
        GgufFile(tmp_path / "a.gguf")


@pytest.mark.parametrize("alignment", [0, 1, 12, 2**21])
def test_an_alignment_that_cannot_be_is_refused(tmp_path: Path, alignment: int) -> None:
    with pytest.raises(CheckpointDamaged, match=f"general.alignment is {alignment}"):
        GgufFile(write_gguf(tmp_path / "a.gguf", {"general.alignment": alignment}, {}))


def test_a_metadata_key_of_another_type_is_named(tmp_path: Path) -> None:
    metadata = GgufFile(write_gguf(tmp_path / "a.gguf", {"a": 1, "b": "x", "c": [], "d": -1}, {})).metadata
    assert metadata.texts("c") == []
    for read, key in (
        (metadata.text, "a"),
        (metadata.texts, "b"),
        (metadata.natural, "b"),
        (metadata.natural, "d"),
        (metadata.flag, "a"),
        (lambda key: metadata.numbers(key, 2), "a"),
    ):
        with pytest.raises(CheckpointDamaged, match=f"metadata key {key} must be"):
            read(key)


def test_text_that_is_no_utf8_names_its_place(tmp_path: Path) -> None:
    content = gguf_bytes({"key": "value!"}, {})
    at = content.index(b"value!")
    (tmp_path / "a.gguf").write_bytes(content.replace(b"value!", b"val\xff!!"))
    with pytest.raises(CheckpointDamaged, match="key is not UTF-8") as caught:
        GgufFile(tmp_path / "a.gguf")
    assert caught.value.offset == at + 3


def test_a_type_that_is_not_read_is_refused_when_it_is_asked_for(tmp_path: Path) -> None:
    file = GgufFile(write_gguf(tmp_path / "a.gguf", {}, {"w": GgufBlob(10, (1, 256), bytes(84)), "x": ONES}))
    assert file.read("x").shape == (2, 32)
    with pytest.raises(CheckpointUnsupported, match="tensor w has type Q2_K, and only F32, F16, Q4_0"):
        file.read("w")
