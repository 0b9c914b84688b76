"""Names on the Hub, and which of a repository's files are read."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["NAME", "TEXTS", "UNWANTED", "WANTED"]

NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")
TEXTS: Final = ("*.json", "*.jinja")
"""What tells of a model without its weights."""
WANTED: Final = (*TEXTS, "*.safetensors", "tokenizer.model", "*.tiktoken", "merges.txt")
UNWANTED: Final = ("consolidated*", "original/*", "onnx/*")
"""The same weights in other layouts."""
