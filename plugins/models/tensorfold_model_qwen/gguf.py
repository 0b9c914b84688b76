"""GGUF files of these architectures (`qwen35`, `qwen35moe`) are not read.

llama.cpp's converter reorders the value heads of a gated delta net in all of its tensors (from grouped by key head to
tiled over key heads) and stores -exp(A_log), which the rules of `GgufArchitecture` cannot undo; such a file is refused
by its architecture's name.
"""

from __future__ import annotations

from typing import Final

from tensorfold.contracts.family import GgufArchitecture

__all__ = ["ARCHITECTURES"]

ARCHITECTURES: Final[tuple[GgufArchitecture, ...]] = ()
