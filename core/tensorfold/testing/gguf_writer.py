"""GGUF files for tests: any metadata, tensors in F32, F16, BF16, Q8_0, Q4_0 or as bytes that the caller made."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["GgufBlob", "GgufItem", "GgufTypeName", "encode_tensor", "gguf_bytes", "write_gguf"]

GgufItem: TypeAlias = bool | int | float | str | Sequence[str] | NDArray[Any]
"""A metadata value: integers are stored as u32 (i32 when negative), floats as f32, arrays by their element type."""
GgufTypeName: TypeAlias = Literal["F32", "F16", "BF16", "Q8_0", "Q4_0"]

_NUMBERS: Final[Mapping[GgufTypeName, int]] = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}
_ELEMENTS: Final = {
    "u1": 0,
    "i1": 1,
    "u2": 2,
    "i2": 3,
    "u4": 4,
    "i4": 5,
    "f4": 6,
    "b1": 7,
    "u8": 10,
    "i8": 11,
    "f8": 12,
}


@dataclass(frozen=True, slots=True)
class GgufBlob:
    """A tensor's bytes as they are stored."""

    type: int
    """The number of its type."""
    shape: tuple[int, ...]
    """`[out, in]`; the file has it reversed."""
    data: bytes


def encode_tensor(values: NDArray[np.float32], type: GgufTypeName) -> GgufBlob:
    """Values in one of the types that are written here; a row is a multiple of 32 in the quantized ones."""
    match type:
        case "F32":
            data = values.astype("<f4").tobytes()
        case "F16":
            data = values.astype("<f2").tobytes()
        case "BF16":
            data = (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        case "Q8_0":
            data = _q8_0(values)
        case "Q4_0":
            data = _q4_0(values)
    return GgufBlob(_NUMBERS[type], values.shape, data)


def write_gguf(
    path: Path, metadata: Mapping[str, GgufItem], tensors: Mapping[str, GgufBlob], *, alignment: int = 32
) -> Path:
    """Write a version 3 file and return its path."""
    path.write_bytes(gguf_bytes(metadata, tensors, alignment=alignment))
    return path


def gguf_bytes(
    metadata: Mapping[str, GgufItem],
    tensors: Mapping[str, GgufBlob],
    *,
    alignment: int = 32,
    version: int = 3,
) -> bytes:
    """The whole file."""
    if alignment != 32:
        metadata = {**metadata, "general.alignment": alignment}
    head = [struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata))]
    head += [_text(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    data: list[bytes] = []
    for name, blob in tensors.items():
        sizes = struct.pack(f"<I{len(blob.shape)}Q", len(blob.shape), *reversed(blob.shape))
        head.append(_text(name) + sizes + struct.pack("<IQ", blob.type, offset))
        padded = blob.data + bytes(-len(blob.data) % alignment)
        data.append(padded)
        offset += len(padded)
    header = b"".join(head)
    return header + bytes(-len(header) % alignment) + b"".join(data)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: GgufItem) -> bytes:
    match value:
        case bool():
            return struct.pack("<IB", 7, value)
        case int():
            return struct.pack("<Ii", 5, value) if value < 0 else struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case np.ndarray():
            kind = _ELEMENTS[value.dtype.str[1:]]
            return struct.pack("<IIQ", 9, kind, value.size) + value.tobytes()
        case _:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))


# ---- quantizing: coarse and short, for files whose exact values do not matter ------------------------------


def _q8_0(values: NDArray[np.float32]) -> bytes:
    blocks = values.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype("<f2")
    codes = np.rint(blocks / np.maximum(scales.astype(np.float32), 1e-8)).clip(-127, 127).astype(np.int8)
    return np.concatenate((scales.view(np.uint8), codes.view(np.uint8)), axis=1).tobytes()


def _q4_0(values: NDArray[np.float32]) -> bytes:
    blocks = values.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1, keepdims=True) / 7).astype("<f2")
    codes = (np.rint(blocks / np.maximum(scales.astype(np.float32), 1e-8)) + 8).clip(0, 15).astype(np.uint8)
    packed = codes[:, :16] | (codes[:, 16:] << np.uint8(4))
    return np.concatenate((scales.view(np.uint8), packed), axis=1).tobytes()
