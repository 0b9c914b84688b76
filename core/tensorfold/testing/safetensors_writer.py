"""Safetensors files with tensors of any type, written with numpy alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Stored", "StoredType", "bfloat16", "write_safetensors", "write_stored"]

StoredType: TypeAlias = Literal["F32", "BF16"]


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """A tensor as it lies in a file."""

    dtype: str
    """The format's name of its type."""
    values: NDArray[Any]
    """In the type of numpy that has the same bytes."""


def bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounded to the nearest bfloat16, ties to even; finite values only."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: Mapping[str, NDArray[np.float32]], dtype: StoredType = "F32") -> None:
    """Write a file of floats."""
    write_stored(
        path, {name: Stored(dtype, each if dtype == "F32" else bfloat16(each)) for name, each in tensors.items()}
    )


def write_stored(path: Path, tensors: Mapping[str, Stored]) -> None:
    """Write a file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    parts: list[bytes] = []
    offset = 0
    for name, stored in tensors.items():
        data = np.ascontiguousarray(stored.values).tobytes()
        end = offset + len(data)
        header[name] = {"dtype": stored.dtype, "shape": list(stored.values.shape), "data_offsets": [offset, end]}
        parts.append(data)
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))
