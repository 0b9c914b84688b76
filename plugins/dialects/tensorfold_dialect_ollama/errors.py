"""Ollama's error envelope."""

from __future__ import annotations

import msgspec

from tensorfold.errors import RequestError

__all__ = ["ErrorBody", "OllamaErrors", "error_body"]


class ErrorBody(msgspec.Struct):
    """The whole envelope."""

    error: str


class OllamaErrors:
    """Encodes errors; the base of the codecs."""

    media_type = "application/json"

    def encode_error(self, error: RequestError, request_id: str) -> bytes:
        """`{"error": "..."}`."""
        return msgspec.json.encode(error_body(error))


def error_body(error: RequestError) -> ErrorBody:
    """The envelope of an error; the field stands in the message, for there is no other place."""
    return ErrorBody(error.message)
