"""Files with random damage: a named error or a read tensor, whatever the bytes, and never much memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorfold.checkpoint.gguf import GgufCheckpoint, GgufFiles
from tensorfold.checkpoint.gguf_reader import GgufFile
from tensorfold.checkpoint.safetensors import SafetensorsFile
from tensorfold.contracts.family import GgufArchitecture
from tensorfold.errors import CheckpointDamaged, CheckpointError, CheckpointUnsupported

RULES = GgufArchitecture("llama", {"hidden_size": "{arch}.embedding_length"}, {})

fuzzed = settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

edits = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.one_of(
            st.binary(min_size=1, max_size=8),
            st.sampled_from([b"\xff" * 8, b"\x00" * 8, (2**40).to_bytes(8, "little"), (2**63).to_bytes(8, "little")]),
        ),
    ),
    max_size=5,
)
"""Where, as a share of the part that is damaged, and what is written there."""


def damaged(content: bytes, edits: list[tuple[float, bytes]], within: int, cut: float) -> bytes:
    """`content` with the edits in its first `within` bytes, cut off at this share."""
    changed = bytearray(content)
    for at, what in edits:
        place = int(at * within)
        changed[place : place + len(what)] = what
    return bytes(changed[: max(1, int(len(changed) * cut))])


def read_all(read: Callable[[], None]) -> None:
    """Hold that the file is read, or refused by one of the two errors and by no other."""
    with contextlib.suppress(CheckpointDamaged, CheckpointUnsupported):
        read()


@fuzzed
@given(edits=edits, cut=st.sampled_from([1.0, 1.0, 0.99, 0.6, 0.3, 0.1, 0.01]))
def test_a_damaged_gguf_file_is_read_or_refused(
    tiny_gguf: Path, tmp_path: Path, edits: list[tuple[float, bytes]], cut: float
) -> None:
    content = tiny_gguf.read_bytes()
    path = tmp_path / "fuzzed.gguf"
    path.write_bytes(damaged(content, edits, len(GgufFile(tiny_gguf).header), cut))

    def read() -> None:
        checkpoint = GgufCheckpoint(GgufFiles(path), RULES)
        for name in checkpoint.names():
            assert checkpoint.read(name).f32().shape == checkpoint.info(name).shape
        assert checkpoint.templates is not None
        assert len(checkpoint.identity) == 64
        checkpoint.tokenizer()

    read_all(read)


@fuzzed
@given(edits=edits)
def test_damaged_gguf_data_is_read_or_refused(
    tiny_gguf: Path, tmp_path: Path, edits: list[tuple[float, bytes]]
) -> None:
    """Bytes of tensors may be anything; a scale that is no number is damage, and nothing else is known to be."""
    content = tiny_gguf.read_bytes()
    header = len(GgufFile(tiny_gguf).header)
    path = tmp_path / "fuzzed.gguf"
    path.write_bytes(content[:header] + damaged(content[header:], edits, len(content) - header, 1.0))

    def read() -> None:
        file = GgufFile(path)
        for name, record in file.tensors.items():
            assert file.read(name).f32().shape == record.shape

    read_all(read)


@fuzzed
@given(edits=edits, cut=st.sampled_from([1.0, 1.0, 0.99, 0.5, 0.1]))
def test_a_damaged_safetensors_file_is_read_or_refused(
    tiny_folder: Path, tmp_path: Path, edits: list[tuple[float, bytes]], cut: float
) -> None:
    source = tiny_folder / "model.safetensors"
    path = tmp_path / "fuzzed.safetensors"
    path.write_bytes(damaged(source.read_bytes(), edits, len(SafetensorsFile(source).header), cut))

    def read() -> None:
        file = SafetensorsFile(path)
        for name in file.names():
            assert file.read(name).shape == file.info(name).shape

    read_all(read)


@pytest.mark.parametrize("at", [8, 16, 24], ids=["tensors", "entries", "key length"])
@pytest.mark.parametrize("count", [2**63, 2**40, 2**32, 100_000])
def test_a_count_that_the_file_cannot_hold_allocates_nothing(
    tiny_gguf: Path, tmp_path: Path, at: int, count: int
) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    content[at : at + 8] = count.to_bytes(8, "little")
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=r"hostile\.gguf: at byte"):
            GgufFile(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.parametrize("key", [b"tokenizer.ggml.tokens", b"tokenizer.ggml.token_type", b"tokenizer.ggml.merges"])
@pytest.mark.parametrize("count", [2**63, 2**40, 2**24])
def test_an_array_that_the_file_cannot_hold_allocates_no_more_than_the_file(
    tiny_gguf: Path, tmp_path: Path, key: bytes, count: int
) -> None:
    content = bytearray(tiny_gguf.read_bytes())
    at = content.index(key) + len(key) + 8
    content[at : at + 8] = count.to_bytes(8, "little")
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointDamaged, match=key.decode()):
            GgufFile(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * len(content)
