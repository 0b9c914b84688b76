"""GGUF files of these architectures (`nemotron_h`, `nemotron_h_moe`) are not read.

llama.cpp's converter stores -exp(A_log) and tells the kind of a layer only by arrays of head counts and widths, which
the rules of `GgufArchitecture` cannot undo; such a file is refused by its architecture's name.
"""

from __future__ import annotations

from typing import Final

from tensorfold.contracts.family import GgufArchitecture

__all__ = ["ARCHITECTURES"]

ARCHITECTURES: Final[tuple[GgufArchitecture, ...]] = ()
