"""OpenAI's error envelope."""

from __future__ import annotations

from tensorfold.wire.envelope import CommonErrors, ErrorBody, error_body

__all__ = ["ErrorBody", "OpenAIErrors", "error_body"]


class OpenAIErrors(CommonErrors):
    """Encodes errors; the base of the codecs."""
