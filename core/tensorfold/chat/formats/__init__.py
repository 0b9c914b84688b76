"""How the families' checkpoints converse: each format is one class that a family returns from `chat`.

| class | whose |
|---|---|
| `QwenFormat` | Qwen3.5 and later: reasoning in `<think>`, calls in XML |
| `NemotronFormat` | Nemotron 3 and later: the same with switches of its own |
| `GlmFormat` | GLM: reasoning in `<think>`, calls as pairs of keys and values |
| `GemmaFormat` | Gemma 4: reasoning in a channel, calls in a notation of its own |
| `HermesFormat` | everybody else: what the checkpoint's own template shows |
"""

from tensorfold.chat.formats.base import MarkupFormat
from tensorfold.chat.formats.gemma import GemmaFormat
from tensorfold.chat.formats.glm import GlmFormat
from tensorfold.chat.formats.hermes import HermesFormat
from tensorfold.chat.formats.nemotron import NemotronFormat
from tensorfold.chat.formats.qwen import QwenFormat

__all__ = ["GemmaFormat", "GlmFormat", "HermesFormat", "MarkupFormat", "NemotronFormat", "QwenFormat"]
