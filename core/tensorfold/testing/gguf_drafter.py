"""Gemma 4's drafters as GGUF files, laid out as llama.cpp's converter does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tensorfold.testing.gguf_hybrids import convert_gemma
from tensorfold.testing.gguf_writer import GgufBlob, GgufItem, GgufTypeName, encode_tensor, write_gguf
from tensorfold.testing.tiny import TinyModel
from tensorfold.testing.tiny_gguf import tiny_metadata

__all__ = ["ARCHITECTURE", "write_assistant_gguf"]

ARCHITECTURE: Final = "gemma4-assistant"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def write_assistant_gguf(
    path: Path,
    config: Mapping[str, Any],
    arrays: Mapping[str, NDArray[np.float32]],
    type: GgufTypeName = "F32",
    *,
    metadata: Mapping[str, GgufItem | None] = _NOTHING,
    tensors: Mapping[str, GgufBlob] = _NOTHING,
) -> Path:
    """Write a drafter, its matrices in a type where their rows are whole blocks; returns the path.

    Args:
        config: of a `gemma4_assistant`; its vocabulary is the tiny tokenizer's.
        metadata: keys under the architecture to be said otherwise, or, with None, not at all.
        tensors: further ones.
    """
    text = config["text_config"]
    converted, found = convert_gemma(text, dict(arrays))
    own: dict[str, GgufItem | None] = {
        **converted,
        "vocab_size": None,
        "embedding_length_out": config["backbone_hidden_size"],
        "nextn_predict_layers": len(text["layer_types"]),
        **metadata,
    }
    found |= {f"nextn.{name}": arrays[name] for name in ("pre_projection.weight", "post_projection.weight")}
    vocabulary = {key: value for key, value in tiny_metadata(TinyModel()).items() if key.startswith("tokenizer.")}
    told: dict[str, GgufItem] = {
        "general.architecture": ARCHITECTURE,
        **{f"{ARCHITECTURE}.{key}": value for key, value in own.items() if value is not None},
        **vocabulary,
    }
    blobs = {name: encode_tensor(each, "F32" if _whole(each) else type) for name, each in found.items()}
    return write_gguf(path, told, {**blobs, **tensors})


def _whole(values: NDArray[np.float32]) -> bool:
    """Whether a tensor is a vector, or has no whole blocks."""
    return values.ndim == 1 or values.shape[-1] % 32 != 0
