"""Kept prefixes on disk: given back when memory has none, there after a restart, never trusted unseen."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.engine.settings import EngineSettings
from tensorfold.engine.spill_file import DamagedFile, SpillHeader, read_header, read_spilled, write_spilled
from tensorfold.errors import ConfigError
from tensorfold.ir import Answer, Limits, Request, Sampling, TokensPrompt
from tensorfold.testing.toy_engine import answer, running, toy_engine

OPEN = 200


def request(number: int, length: int = 600) -> Request:
    ids = (OPEN, *((number * 7 + place * 3) % 90 + 30 for place in range(length - 1)), OPEN, 65)
    return Request(
        id="r",
        prompt=TokensPrompt(ids),
        limits=Limits(max_tokens=6, ignore_eos=True),
        sampling=Sampling(temperature=0.8, seed=number),
    )


def serve(folder: Path, *requests: Request, limit: int = 1 << 20, **engine_fields: Any) -> list[Answer]:
    """One after the other, on an engine that spills to this folder."""

    async def main() -> list[Answer]:
        settings = EngineSettings(spill_folder=folder, spill_bytes=limit)
        engine = toy_engine(chunk=1024, opening=OPEN, equal=False, settings=settings, **engine_fields)
        async with running(engine):
            found: list[Answer] = []
            for each in requests:
                found.append(await answer(engine, each))
                await asyncio.sleep(0.02)
            return found

    return asyncio.run(main())


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.prefix"))


@pytest.mark.requirement("T-290")
def test_a_restarted_server_begins_with_what_the_last_one_kept(tmp_path: Path) -> None:
    """The same reply, its prompt taken from disk."""
    (first,) = serve(tmp_path, request(1))
    (second,) = serve(tmp_path, request(1))
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 600)
    assert first.token_sha == second.token_sha


def test_what_memory_gives_up_is_found_on_disk(tmp_path: Path) -> None:
    """Six prompts in memory for two: the first one comes back from disk, in the same server."""
    tight = {"positions": 1280, "window": 1280, "lanes": 1}
    requests = [request(number) for number in range(1, 7)]
    found = serve(tmp_path, *requests, requests[0], **tight)
    assert [each.usage.cached_tokens for each in found] == [0] * 6 + [600]
    assert found[0].token_sha == found[-1].token_sha


def test_only_the_owner_may_read_the_files(tmp_path: Path) -> None:
    """They hold what users wrote."""
    serve(tmp_path, request(1))
    (path,) = files(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_files_take_no_more_room_than_they_may(tmp_path: Path) -> None:
    """The oldest are deleted."""
    requests = [request(number) for number in range(1, 7)]
    serve(tmp_path, requests[0])
    size = files(tmp_path)[0].stat().st_size
    for each in requests:
        serve(tmp_path, each, limit=3 * size + 100)
    assert len(files(tmp_path)) == 3
    (again,) = serve(tmp_path, requests[-1], limit=3 * size + 100)
    assert again.usage.cached_tokens == 600


def test_a_changed_file_is_deleted_and_computed_again(tmp_path: Path) -> None:
    """One bit is enough; so is a missing end."""
    (first,) = serve(tmp_path, request(1))
    for damage in (_flipped, _cut):
        (path,) = files(tmp_path)
        path.write_bytes(damage(path.read_bytes()))
        (again,) = serve(tmp_path, request(1))
        assert again.usage.cached_tokens == 0
        assert again.token_sha == first.token_sha
        (whole,) = serve(tmp_path, request(1))
        assert whole.usage.cached_tokens == 600


def _flipped(data: bytes) -> bytes:
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def test_another_plan_is_another_folder(tmp_path: Path) -> None:
    """States computed by other chunks are never looked at."""
    serve(tmp_path, request(1))

    async def main() -> Answer:
        settings = EngineSettings(spill_folder=tmp_path, spill_bytes=1 << 20)
        engine = toy_engine(chunk=512, opening=OPEN, equal=False, settings=settings)
        async with running(engine):
            return await answer(engine, request(1))

    assert asyncio.run(main()).usage.cached_tokens == 0


def test_a_folder_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be spilled to"):
        serve(tmp_path / "file", request(1))


# ---- the file ---------------------------------------------------------------------------------------------

HEADER = SpillHeader("who", (1, 2, 3), ((0, 3),), "prompt")
ARRAYS: dict[str, Any] = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "empty": np.zeros((0, 4), dtype=np.uint16),
    "scalar": np.asarray(7, dtype=np.int64),
    "bits": np.arange(8, dtype=np.uint16)[::2],
}


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    """Shapes, types and bits, empty arrays and views included."""
    path = tmp_path / "x.prefix"
    assert write_spilled(path, HEADER, ARRAYS) == path.stat().st_size
    header, arrays = read_spilled(path)
    assert (header.identity, header.ids, header.plan[0].end) == ("who", (1, 2, 3), 3)
    assert read_header(path) == header
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", [0, 25, 60, 70, -1])
def test_every_changed_byte_is_noticed(tmp_path: Path, place: int) -> None:
    path = tmp_path / "x.prefix"
    write_spilled(path, HEADER, ARRAYS)
    data = bytearray(path.read_bytes())
    data[place] ^= 0x40
    path.write_bytes(bytes(data))
    with pytest.raises(DamagedFile):
        read_spilled(path)


@pytest.mark.parametrize("data", [b"", b"tensorfold", b"tensorfold prefix 1\n" + b"\xff" * 60])
def test_other_files_are_told_apart(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.prefix"
    path.write_bytes(data)
    for read in (read_header, read_spilled):
        with pytest.raises(DamagedFile):
            read(path)
