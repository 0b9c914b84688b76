"""OpenAI's error envelope."""

from __future__ import annotations

import msgspec

from tensorfold.errors import RequestError
from tensorfold.wire.envelope import CommonErrors, ErrorBody, error_body

__all__ = ["ErrorBody", "OpenAIErrors", "ResponsesErrors", "error_body"]


class OpenAIErrors(CommonErrors):
    """Encodes errors; the base of the codecs."""


class ResponsesErrors(OpenAIErrors):
    """The same for Responses, where a conversation is the `input`."""

    def encode_error(self, error: RequestError, request_id: str) -> bytes:
        """`{"error": {...}}`, about the field that this API has."""
        body = error_body(error)
        if error.param == "messages":
            body.error.param = "input"
        return msgspec.json.encode(body)
