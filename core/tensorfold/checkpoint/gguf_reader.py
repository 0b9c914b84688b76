"""GGUF files, versions 2 and 3: metadata and tensor infos, every length checked before anything is made of it.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn

import numpy as np

from tensorfold.checkpoint.gguf_metadata import GgufMetadata, GgufValue
from tensorfold.checkpoint.gguf_types import TYPES, GgufType, expand
from tensorfold.checkpoint.mapped import MappedFile
from tensorfold.contracts.tensors import Tensor
from tensorfold.errors import CheckpointDamaged, CheckpointUnsupported

__all__ = ["GgufFile", "GgufRecord"]

_SCALARS: Final[Mapping[int, struct.Struct]] = MappingProxyType(
    {number: struct.Struct(f"<{code}") for number, code in enumerate("BbHhIif")}
    | {7: struct.Struct("<B")}
    | {10 + number: struct.Struct(f"<{code}") for number, code in enumerate("Qqd")}
)
"""Value types by number; 7 is a boolean, 8 a string, 9 an array."""
_FLOAT32, _BOOL, _STRING, _ARRAY = 6, 7, 8, 9
_LAYOUTS: Final[Mapping[int, str]] = MappingProxyType(
    dict(enumerate(("u1", "i1", "<u2", "<i2", "<u4", "<i4", "<f4", "?"))) | {10: "<u8", 11: "<i8", 12: "<f8"}
)

MAX_DIMENSIONS: Final = 4
MAX_ALIGNMENT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class GgufRecord:
    """A tensor as the file describes it."""

    name: str
    shape: tuple[int, ...]
    """`[out, in]` for a matrix: the file's order reversed."""
    type: GgufType
    offset: int
    """Of its data in the file, in bytes."""
    size: int
    """Of its data, in bytes."""


class GgufFile:
    """One file, its header read and checked."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            CheckpointNotFound: the file may not be read.
            CheckpointDamaged: it is not GGUF, or its header cannot be right.
            CheckpointUnsupported: its version, byte order or a tensor's type is not read.
        """
        self.path = path
        self._file = MappedFile(path)
        self.size = self._file.size
        self.modified = self._file.modified
        self._at = 0
        tensors, entries = self._preamble()
        self.metadata = self._metadata(entries)
        alignment = self.metadata.natural("general.alignment")
        alignment = 32 if alignment is None else alignment
        if not 0 < alignment <= MAX_ALIGNMENT or alignment % 8:
            self._damaged(f"general.alignment is {alignment}, and must be a multiple of 8 up to {MAX_ALIGNMENT}")
        self.tensors = self._records(tensors, alignment)

    @property
    def header(self) -> bytes:
        """The bytes of metadata and tensor infos."""
        return self._file.bytes[: self._at]

    def read(self, name: str) -> Tensor:
        """A tensor.

        Raises:
            CheckpointDamaged: a scale is not finite.
            CheckpointUnsupported: its type is not read.
        """
        record = self.tensors[name]
        if problem := record.type.problem:
            raise CheckpointUnsupported(f"{self.path}: tensor {name} {problem}")
        data = np.frombuffer(self._file.bytes, np.uint8, record.size, record.offset)
        try:
            return expand(record.type, data, record.shape)
        except ValueError as error:
            raise CheckpointDamaged(self.path, record.offset, f"tensor {name}: {error}") from error

    # ---- the header, front to back -------------------------------------------------------------------------

    def _preamble(self) -> tuple[int, int]:
        """The counts of tensors and metadata entries."""
        self._file.check(0, 24, "the header")
        magic, version = struct.unpack_from("<4sI", self._file.bytes)
        if magic != b"GGUF":
            raise CheckpointDamaged(self.path, 0, f"a GGUF file begins with b'GGUF', and this one with {magic!r}")
        if version not in (2, 3):
            order = ", big-endian" if version and not version & 0xFFFF else ""
            raise CheckpointUnsupported(f"{self.path} is GGUF version {version:#x}{order}; versions 2 and 3 are read")
        tensors, entries = struct.unpack_from("<QQ", self._file.bytes, 8)
        self._at = 24
        # The least that an entry takes: a name's length, and a number of each kind.
        self._file.check(24, tensors * 24 + entries * 13, f"a header of {tensors} tensors and {entries} entries")
        return tensors, entries

    def _metadata(self, entries: int) -> GgufMetadata:
        metadata: dict[str, GgufValue] = {}
        for _ in range(entries):
            start = self._at
            key = self._text("a metadata key")
            if key in metadata:
                raise CheckpointDamaged(self.path, start, f"metadata key {key} is there twice")
            metadata[key] = self._value(self._number(_SCALARS[4], f"the type of {key}"), key)
        return GgufMetadata(self.path, metadata)

    def _value(self, kind: int, key: str) -> GgufValue:
        if kind == _STRING:
            return self._text(key)
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            self._damaged(f"metadata key {key} has type {kind}, which there is not")
        value = self._number(_SCALARS[kind], key)
        if kind == _BOOL:
            return bool(value)
        # The shortest decimal that is this float32: what the converter was given (0.00001, not 0.00000999999974).
        return float(str(np.float32(value))) if kind == _FLOAT32 else value

    def _array(self, key: str) -> GgufValue:
        kind = self._number(_SCALARS[4], f"the element type of {key}")
        count = self._number(_SCALARS[10], f"the length of {key}")
        if kind == _STRING:
            return self._texts(count, key)
        if kind == _ARRAY:
            raise CheckpointUnsupported(f"{self.path}: metadata key {key} is an array of arrays, which is not read")
        if kind not in _LAYOUTS:
            self._damaged(f"metadata key {key} has elements of type {kind}, which there is not")
        layout = np.dtype(_LAYOUTS[kind])
        self._file.check(self._at, count * layout.itemsize, key)
        values = np.frombuffer(self._file.bytes, layout, count, self._at) if count else np.empty(0, layout)
        self._at += values.nbytes
        return values

    def _number(self, layout: struct.Struct, what: str) -> Any:
        self._file.check(self._at, layout.size, what)
        (value,) = layout.unpack_from(self._file.bytes, self._at)
        self._at += layout.size
        return value

    def _text(self, what: str) -> str:
        (text,) = self._texts(1, what)
        return text

    def _texts(self, count: int, what: str) -> list[str]:
        # PERF: vocabularies have 250,000 strings and as many merges; one plain loop over the mapping reads them in
        # 0.2 us each, a method call for every one takes four times as long.
        data, size, at, unpack = self._file.bytes, self.size, self._at, _SCALARS[10].unpack_from
        self._file.check(at, count * 8, what)
        texts: list[str] = []
        try:
            for _ in range(count):
                (length,) = unpack(data, at)
                end = at + 8 + length
                if end > size:
                    raise CheckpointDamaged(self.path, at, f"{what} has a text of {length} bytes, and the file ends")
                texts.append(data[at + 8 : end].decode())
                at = end
        except UnicodeDecodeError as error:
            raise CheckpointDamaged(self.path, at + 8 + error.start, f"{what} is not UTF-8") from error
        except struct.error as error:
            raise CheckpointDamaged(self.path, at, f"{what} goes on, and the file ends") from error
        self._at = at
        return texts

    # ---- tensor infos --------------------------------------------------------------------------------------

    def _records(self, count: int, alignment: int) -> Mapping[str, GgufRecord]:
        records: dict[str, GgufRecord] = {}
        infos = list(self._infos(count))
        start = -(-self._at // alignment) * alignment
        for at, name, shape, type, offset in infos:
            if name in records:
                raise CheckpointDamaged(self.path, at, f"tensor {name} is there twice")
            elements = math.prod(shape)
            size = elements // type.block * type.size
            if (shape[-1] if shape else 1) % type.block:
                problem = f"rows of {shape[-1]}, which is no multiple of {type.block}, the block of {type.name}"
                raise CheckpointDamaged(self.path, at, f"tensor {name} has {problem}")
            if offset % alignment or start + offset + size > self.size:
                problem = f"lies at {start + offset} with {size} bytes: not aligned to {alignment} and in the file"
                raise CheckpointDamaged(self.path, at, f"tensor {name} {problem}")
            records[name] = GgufRecord(name, shape, type, start + offset, size)
        by_offset = sorted(records.values(), key=lambda record: (record.offset, record.size))
        for record, following in pairwise(by_offset):
            if record.offset + record.size > following.offset:
                raise CheckpointDamaged(self.path, following.offset, f"{record.name} and {following.name} overlap")
        return records

    def _infos(self, count: int) -> Iterator[tuple[int, str, tuple[int, ...], GgufType, int]]:
        """Where each info stands, the tensor's name, shape, type, and offset in the data."""
        for _ in range(count):
            at = self._at
            name = self._text("a tensor's name")
            dimensions = self._number(_SCALARS[4], f"the number of dimensions of {name}")
            if dimensions > MAX_DIMENSIONS:
                self._damaged(f"tensor {name} has {dimensions} dimensions, and at most {MAX_DIMENSIONS} are possible")
            sizes = [self._number(_SCALARS[10], f"a dimension of {name}") for _ in range(dimensions)]
            if 0 in sizes:
                self._damaged(f"tensor {name} has a dimension of 0")
            kind = self._number(_SCALARS[4], f"the type of {name}")
            if kind not in TYPES:
                raise CheckpointUnsupported(f"{self.path}: tensor {name} has type number {kind}, which is not known")
            offset = self._number(_SCALARS[10], f"the offset of {name}")
            yield at, name, tuple(reversed(sizes)), TYPES[kind], offset

    def _damaged(self, problem: str) -> NoReturn:
        raise CheckpointDamaged(self.path, self._at, problem)
