"""Safetensors files: a JSON header of names, types, shapes and byte ranges, then the tensors end to end.

Format: https://github.com/huggingface/safetensors (the header's length as a little-endian u64, the header, the data,
which the tensors' ranges cover without holes or overlap).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.checkpoint.json_files import parse_object
from tensorfold.checkpoint.mapped import MappedFile
from tensorfold.contracts.tensors import Dense, DenseType, TensorInfo
from tensorfold.errors import CheckpointDamaged, CheckpointUnsupported

__all__ = ["SafetensorsFile"]

MAX_HEADER: Final = 100_000_000
"""The longest header that the format's own library reads, in bytes."""

MAX_DIMENSIONS: Final = 32
MAX_ELEMENTS: Final = 1 << 48
"""Far beyond any file, and within what numpy can describe."""

_READ: Final[Mapping[str, tuple[DenseType, str]]] = MappingProxyType(
    {
        "F32": ("f32", "<f4"),
        "F16": ("f16", "<f2"),
        "BF16": ("bf16", "<u2"),
        "I64": ("i64", "<i8"),
        "I32": ("i32", "<i4"),
        "U8": ("u8", "u1"),
    }
)
"""Types that are read, to their type here and in numpy."""

_RAW: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{kind: layout for kind, (_, layout) in _READ.items()},
        **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "BOOL"), "u1"),
        "I8": "i1",
        "U16": "<u2",
        "I16": "<i2",
        "U32": "<u4",
        "U64": "<u8",
        "F64": "<f8",
    }
)
"""The type in numpy of every type whose elements are whole bytes."""

_BITS: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
        **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
        **dict.fromkeys(("U32", "I32", "F32"), 32),
        **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
        "F4": 4,
        "F6_E2M3": 6,
        "F6_E3M2": 6,
    }
)
"""Bits that an element takes; a type that is not here has no length to check."""


@dataclass(frozen=True, slots=True)
class _Entry:
    info: TensorInfo
    begin: int
    """Of the data in the file, in bytes."""


class SafetensorsFile:
    """One file, its header read and checked."""

    def __init__(self, path: Path) -> None:
        """Read the header.

        Raises:
            CheckpointNotFound: the file may not be read.
            CheckpointDamaged: the header cannot be right.
        """
        self._file = MappedFile(path)
        self.path = path
        self.size = self._file.size
        self.modified = self._file.modified
        self._data = 8 + self._header_length()
        header = parse_object(path, self._header_text(), 8, distinct=True)
        header.pop("__metadata__", None)
        self._entries = {name: self._entry(name, value) for name, value in header.items()}
        self._check_cover()

    @property
    def header(self) -> bytes:
        """The header's bytes."""
        return self._file.bytes[: self._data]

    def names(self) -> tuple[str, ...]:
        """Every tensor, in the header's order."""
        return tuple(self._entries)

    def info(self, name: str) -> TensorInfo:
        """What the header says of a tensor."""
        return self._entries[name].info

    def read(self, name: str) -> Dense:
        """A tensor, as a view of the file.

        Raises:
            CheckpointUnsupported: its type is not read.
        """
        info = self._entries[name].info
        if info.problem:
            raise CheckpointUnsupported(f"{self.path}: tensor {name} {info.problem}")
        type, layout = _READ[info.kind]
        return Dense(self._view(name, layout), type)

    def raw(self, name: str) -> NDArray[Any]:
        """A tensor as a view of the file; what numpy has no type for, as unsigned integers of its size.

        Raises:
            CheckpointUnsupported: its elements are no whole bytes, or of no known size.
        """
        kind = self._entries[name].info.kind
        if kind not in _RAW:
            raise CheckpointUnsupported(f"{self.path}: tensor {name} has type {kind}, of which no bytes are read")
        return self._view(name, _RAW[kind])

    def _view(self, name: str, layout: str) -> NDArray[Any]:
        entry = self._entries[name]
        if not entry.info.stored_bytes:
            return np.empty(entry.info.shape, layout)
        flat = np.frombuffer(self._file.bytes, layout, math.prod(entry.info.shape), entry.begin)
        return flat.reshape(entry.info.shape)

    def _header_length(self) -> int:
        self._file.check(0, 8, "the header's length")
        length: int
        (length,) = struct.unpack_from("<Q", self._file.bytes)
        if length > MAX_HEADER:
            raise CheckpointDamaged(self.path, 0, f"the header has {length} bytes, and at most {MAX_HEADER} are read")
        self._file.check(8, length, "the header")
        return length

    def _header_text(self) -> str:
        try:
            return self._file.bytes[8 : self._data].decode()
        except UnicodeDecodeError as error:
            raise CheckpointDamaged(self.path, 8 + error.start, "the header is not UTF-8") from error

    def _entry(self, name: str, value: object) -> _Entry:
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        kind = fields.get("dtype")
        shape, offsets = _naturals(fields.get("shape")), _naturals(fields.get("data_offsets"))
        if not isinstance(kind, str) or shape is None or offsets is None or len(offsets) != 2:
            self._damaged(name, "must have a dtype, a shape and two data_offsets")
        if len(shape) > MAX_DIMENSIONS or math.prod(max(size, 1) for size in shape) > MAX_ELEMENTS:
            self._damaged(name, f"has {len(shape)} dimensions and more elements than any file")
        begin, end = offsets
        length = end - begin
        if length < 0 or end > self.size - self._data:
            self._damaged(name, f"lies at {begin} to {end}, and the data has {self.size - self._data} bytes")
        wanted = math.prod(shape) * _BITS.get(kind, 0)
        if kind in _BITS and wanted != length * 8:
            self._damaged(name, f"has {length} bytes, and {kind} {list(shape)} takes {math.ceil(wanted / 8)}")
        problem = "" if kind in _READ else f"has type {kind}, and only {', '.join(_READ)} are read"
        return _Entry(TensorInfo(name, shape, kind, length, problem=problem), self._data + begin)

    def _check_cover(self) -> None:
        ranges = sorted(
            (entry.begin, entry.begin + entry.info.stored_bytes, name) for name, entry in self._entries.items()
        )
        for (_, end, name), (begin, _, next_name) in pairwise([(0, self._data, "the header"), *ranges]):
            if begin != end:
                problem = "overlap" if begin < end else f"have {begin - end} unclaimed bytes between them"
                raise CheckpointDamaged(self.path, min(begin, end), f"{name} and {next_name} {problem}")
        last = ranges[-1][1] if ranges else self._data
        if last != self.size:
            raise CheckpointDamaged(self.path, last, f"{self.size - last} bytes after the last tensor belong to none")

    def _damaged(self, name: str, problem: str) -> NoReturn:
        raise CheckpointDamaged(self.path, 8, f"tensor {name} {problem}")


def _naturals(value: object) -> tuple[int, ...] | None:
    """A JSON list of natural numbers, or None."""
    if not isinstance(value, list):
        return None
    items = cast("list[object]", value)
    numbers = tuple(item for item in items if type(item) is int and 0 <= item <= MAX_ELEMENTS)
    return numbers if len(numbers) == len(items) else None
