"""GGUF files of this family: of each generation, and of drafters."""

from __future__ import annotations

from typing import Final

from tensorfold.contracts.gguf import GgufArchitecture
from tensorfold_model_gemma.gguf3 import GEMMA3
from tensorfold_model_gemma.gguf4 import GEMMA4
from tensorfold_model_gemma.gguf4_assistant import GEMMA4_ASSISTANT

__all__ = ["ARCHITECTURES"]

ARCHITECTURES: Final[tuple[GgufArchitecture, ...]] = (GEMMA3, GEMMA4, GEMMA4_ASSISTANT)
