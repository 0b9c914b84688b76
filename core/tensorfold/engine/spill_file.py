"""The file of a spilled prefix: a digest over all the rest, a header, and arrays end to end."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensorfold.engine.kept import Keeping
from tensorfold.engine.plan import Chunk
from tensorfold.errors import TensorfoldError

__all__ = ["DamagedFile", "SpillHeader", "drop_unfinished", "read_header", "read_spilled", "write_spilled"]

MAGIC = b"tensorfold prefix 1\n"
DIGEST = 32
"""Bytes of the digest (BLAKE2b) behind the magic."""
UNFINISHED = ".tmp"
"""The suffix of a file that is being written, behind the number of the process that writes it."""
LENGTH = struct.Struct("<Q")
KINDS = frozenset({"f", "i", "u", "b"})
"""Kinds of numbers that an array may hold."""


class DamagedFile(TensorfoldError):
    """A file that is cut, changed, or no spilled prefix at all."""


class ArrayPlace(msgspec.Struct, frozen=True):
    """One array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    length: int
    """In bytes; arrays stand in this order."""


class SpillHeader(msgspec.Struct, frozen=True):
    """What a file holds."""

    identity: str
    """Of the runner."""
    ids: tuple[int, ...]
    chunks: tuple[tuple[int, int], ...]
    keeping: Keeping
    arrays: tuple[ArrayPlace, ...] = ()

    @property
    def plan(self) -> tuple[Chunk, ...]:
        """The chunks by which it was computed."""
        return tuple(Chunk(start, end) for start, end in self.chunks)


def write_spilled(path: Path, header: SpillHeader, arrays: Mapping[str, NDArray[np.generic]]) -> int:
    """Write a file as a whole or not at all, readable by its owner alone; gives its size in bytes.

    Raises:
        OSError: it cannot be written.
    """
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    places = tuple(
        ArrayPlace(name, array.dtype.str, arrays[name].shape, array.nbytes) for name, array in contiguous.items()
    )
    encoded = msgspec.msgpack.encode(msgspec.structs.replace(header, arrays=places))
    digest = hashlib.blake2b(digest_size=DIGEST)
    parts: list[bytes | memoryview] = [LENGTH.pack(len(encoded)), encoded]
    parts += [array.data.cast("B") for array in contiguous.values() if array.nbytes]
    for part in parts:
        digest.update(part)
    temporary = path.with_suffix(f".{os.getpid()}{UNFINISHED}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in (MAGIC, digest.digest(), *parts):
                file.write(part)
            size = file.tell()
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return size


def drop_unfinished(folder: Path) -> None:
    """Delete what processes that are no more have left half written.

    Raises:
        OSError: the folder cannot be read.
    """
    for path in folder.glob(f"*{UNFINISHED}"):
        writer = path.suffixes[-2].removeprefix(".") if len(path.suffixes) > 1 else ""
        if not writer.isdecimal() or not _runs(int(writer)):
            path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return process != os.getpid()


def read_header(path: Path) -> SpillHeader:
    """The header alone, unchecked: what it says has to be compared once the file is read.

    Raises:
        OSError: it cannot be read.
        DamagedFile: it is no spilled prefix.
    """
    with path.open("rb") as file:
        start = file.read(len(MAGIC) + DIGEST + LENGTH.size)
        size = path.stat().st_size - len(start)
        if len(start) < len(MAGIC) + DIGEST + LENGTH.size or not start.startswith(MAGIC):
            raise DamagedFile(f"{path} is no spilled prefix")
        (length,) = LENGTH.unpack(start[-LENGTH.size :])
        if length > size:
            raise DamagedFile(f"{path} is cut: its header of {length} bytes goes beyond its end")
        return _decoded(path, file.read(length))


def read_spilled(path: Path) -> tuple[SpillHeader, dict[str, NDArray[np.generic]]]:
    """Header and arrays, after the digest was compared.

    Raises:
        OSError: it cannot be read.
        DamagedFile: it is no spilled prefix, or not what was written.
    """
    data = path.read_bytes()
    begin = len(MAGIC) + DIGEST
    if not data.startswith(MAGIC) or len(data) < begin + LENGTH.size:
        raise DamagedFile(f"{path} is no spilled prefix")
    view = memoryview(data)
    if hashlib.blake2b(view[begin:], digest_size=DIGEST).digest() != data[len(MAGIC) : begin]:
        raise DamagedFile(f"{path} is not what was written: its digest differs")
    (length,) = LENGTH.unpack(view[begin : begin + LENGTH.size])
    place = begin + LENGTH.size + length
    header = _decoded(path, view[begin + LENGTH.size : place])
    arrays: dict[str, NDArray[np.generic]] = {}
    for each in header.arrays:
        if each.length < 0 or place + each.length > len(data):
            raise DamagedFile(f"{path}: array {each.name} cannot be read")
        arrays[each.name] = _array(path, each, view[place : place + each.length])
        place += each.length
    return header, arrays


def _array(path: Path, place: ArrayPlace, content: memoryview) -> NDArray[np.generic]:
    try:
        dtype = np.dtype(place.dtype)
        if dtype.kind not in KINDS or dtype.subdtype is not None or dtype.fields is not None:
            raise ValueError(f"a dtype of {place.dtype}")
        flat: NDArray[np.generic] = np.frombuffer(content, dtype=dtype)
        return flat.reshape(place.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise DamagedFile(f"{path}: array {place.name} cannot be read: {error}") from error


def _decoded(path: Path, encoded: bytes | memoryview) -> SpillHeader:
    try:
        return msgspec.msgpack.decode(encoded, type=SpillHeader)
    except msgspec.DecodeError as error:
        raise DamagedFile(f"{path}: its header cannot be read: {error}") from error
