"""Every family's checkpoints converse in its own format."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.chat.formats import GemmaFormat, GlmFormat, HermesFormat, NemotronFormat, QwenFormat
from tensorfold.contracts.chat import MarkedFormat
from tensorfold_model_flash_next.format import chat_format as flash_next
from tensorfold_model_gemma.config import VARIANTS
from tensorfold_model_gemma.format import chat_format as gemma
from tensorfold_model_glm.format import chat_format as glm
from tensorfold_model_llama.format import chat_format as llama
from tensorfold_model_nemotron.format import chat_format as nemotron
from tensorfold_model_qwen.format import chat_format as qwen


@pytest.mark.parametrize(
    ("format", "kind"),
    [
        (flash_next(), QwenFormat),
        (gemma(next(variant for variant in VARIANTS if "tools" in variant.capabilities)), GemmaFormat),
        (glm(), GlmFormat),
        (llama(), HermesFormat),
        (nemotron(), NemotronFormat),
        (qwen(), QwenFormat),
    ],
)
def test_a_family_has_its_own_format(format: Any, kind: type[Any]) -> None:
    """With marks, so that calls can be demanded and reasoning be bounded."""
    assert type(format) is kind
    assert isinstance(format, MarkedFormat)
    assert format.marks.thinking is not None
    assert format.marks.call is not None
    assert format.marks.frame is not None
