"""Golden replies: for every format one table of texts, and of what they are."""

from __future__ import annotations

from typing import Final

from tensorfold.chat.formats import GemmaFormat, GlmFormat, HermesFormat, NemotronFormat, QwenFormat
from tensorfold.contracts.chat import ChatFormat
from tensorfold.testing.golden.gemma import GEMMA
from tensorfold.testing.golden.pairs import GLM
from tensorfold.testing.golden.reply import TOOLS, Golden
from tensorfold.testing.golden.tagged import HERMES, NEMOTRON, TAGGED
from tensorfold.testing.golden.texts import TEXTS, THINKING

__all__ = ["FORMATS", "GOLDEN", "TOOLS", "Golden"]

FORMATS: Final[dict[str, ChatFormat]] = {
    "qwen": QwenFormat(),
    "nemotron": NemotronFormat(),
    "hermes": HermesFormat(),
    "glm": GlmFormat(),
    "gemma": GemmaFormat(),
}

GOLDEN: Final[dict[str, tuple[Golden, ...]]] = {
    "qwen": (*TEXTS, *THINKING, *TAGGED),
    "nemotron": (*TEXTS, *THINKING, *TAGGED, *NEMOTRON),
    "hermes": (*TEXTS, *THINKING, *TAGGED, *HERMES),
    "glm": (*TEXTS, *THINKING, *GLM),
    "gemma": (*TEXTS, *GEMMA),
}
