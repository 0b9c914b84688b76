"""Files of untrusted checkpoints, and those of our own that a disk may have changed: read, or refused by name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.engine.spill_file import (
    DIGEST,
    LENGTH,
    MAGIC,
    DamagedFile,
    SpillHeader,
    read_header,
    read_spilled,
    write_spilled,
)
from tensorfold.errors import CheckpointError
from tensorfold.plugins import Plugins, Wanted
from tensorfold.testing.tiny import TinyModel, write_tiny

from .bounds import fuzzed, within_a_second

FAMILIES = [offered.value for offered in Plugins(Wanted()).families()]
NAMES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")

values: Any = some.recursive(
    some.none()
    | some.booleans()
    | some.sampled_from([0, -1, 1, 2**31, 2**63, 2**70, 0.5, 1e308, -1e-308])
    | some.sampled_from(["", "x", "llama", "../../etc/passwd", "\x00", "{{ x }}", "Ġ", "silu"])
    | some.text(max_size=4),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"), TinyModel(hidden=32, layers=1, heads=2, kv_heads=1, width=32))


def opened(folder: Path) -> None:
    """All of a checkpoint but its weights' numbers; refusals are of one tree of errors."""
    try:
        found = open_checkpoint(folder, FAMILIES)
        found.family.geometry(found.checkpoint.config)
        found.family.chat(found.checkpoint.config)
        tokenizer = found.checkpoint.tokenizer()
        tokenizer.encode("hello <|im_end|> \ud800", add_special_tokens=True, parse_special=True)
        assert found.checkpoint.templates is not None
    except CheckpointError:
        return


@pytest.mark.parametrize("name", NAMES)
@fuzzed
@given(data=some.data())
def test_a_changed_value_in_a_checkpoints_json(name: str, folder: Path, tmp_path: Path, data: some.DataObject) -> None:
    """At any depth of any of its files."""
    document = json.loads((folder / name).read_text())
    place: Any = document
    for _ in range(data.draw(some.integers(0, 4))):
        keys = list(place) if isinstance(place, dict) else list(range(min(len(place), 20)))
        key = data.draw(some.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key]:
            break
        place = place[key]
    key = data.draw(some.sampled_from(list(place) if isinstance(place, dict) else list(range(min(len(place), 20)))))
    place[key] = data.draw(values)
    for path in folder.iterdir():
        target = tmp_path / path.name
        target.unlink(missing_ok=True)
        target.symlink_to(path)
    (tmp_path / name).unlink()
    (tmp_path / name).write_bytes(json.dumps(document).encode(errors="replace"))
    with within_a_second(2.0):
        opened(tmp_path)


@pytest.mark.parametrize("name", NAMES)
@fuzzed
@given(content=some.binary(max_size=40) | some.text(some.sampled_from('{}[]",:0 e-'), max_size=40).map(str.encode))
def test_a_checkpoints_json_that_is_none(name: str, folder: Path, tmp_path: Path, content: bytes) -> None:
    for path in folder.iterdir():
        target = tmp_path / path.name
        target.unlink(missing_ok=True)
        target.symlink_to(path)
    (tmp_path / name).unlink()
    (tmp_path / name).write_bytes(content)
    with within_a_second(2.0):
        opened(tmp_path)


# ---- kept prompts on disk ---------------------------------------------------------------------------------


def spilled(path: Path) -> bytes:
    header = SpillHeader(identity="me", ids=(1, 2, 3), chunks=((0, 3),), keeping="prompt")
    write_spilled(path, header, {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(2, np.int64)})
    return path.read_bytes()


@fuzzed
@given(
    edits=some.lists(some.tuples(some.floats(0, 1, exclude_max=True), some.binary(min_size=1, max_size=8)), max_size=4),
    cut=some.floats(0, 1),
)
def test_a_kept_prompt_that_was_changed(tmp_path: Path, edits: list[tuple[float, bytes]], cut: float) -> None:
    path = tmp_path / "x.prefix"
    content = bytearray(spilled(path))
    for at, what in edits:
        place = int(at * len(content))
        content[place : place + len(what)] = what
    path.write_bytes(bytes(content[: max(1, int(cut * len(content)))]))
    for read in (read_header, read_spilled):
        with within_a_second():
            try:
                read(path)
            except DamagedFile:
                continue


@fuzzed
@given(data=some.data())
def test_a_kept_prompt_whose_digest_is_right_and_whose_header_is_not(tmp_path: Path, data: some.DataObject) -> None:
    """Whoever may write to the folder may also compute a digest."""
    place = data.draw(
        some.fixed_dictionaries(
            {
                "name": some.text(max_size=3),
                "dtype": some.sampled_from(
                    ["<f4", "O", "f", "", "nonsense", "<U9999999", "V8", "<f4,<f4", "(3,)<f4", "<M8"]
                ),
                "shape": some.lists(some.integers(-3, 2**40), max_size=3),
                "length": some.integers(-9, 2**40),
            }
        )
    )
    header = {"identity": "me", "ids": [1], "chunks": [[0, 1]], "keeping": "prompt", "arrays": [place]}
    encoded = msgspec.msgpack.encode(header)
    rest = LENGTH.pack(data.draw(some.sampled_from([len(encoded), 0, 2**63]))) + encoded + bytes(24)
    path = tmp_path / "x.prefix"
    path.write_bytes(MAGIC + hashlib.blake2b(rest, digest_size=DIGEST).digest() + rest)
    with within_a_second():
        try:
            read_spilled(path)
        except DamagedFile:
            return
