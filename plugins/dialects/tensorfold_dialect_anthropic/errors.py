"""Anthropic's error envelope."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from tensorfold.errors import RequestError

__all__ = ["AnthropicErrors", "ErrorBody", "error_body"]

_TOO_LONG = "context_length_exceeded"


class ErrorDetail(msgspec.Struct):
    """What SDKs turn into an exception's fields."""

    type: str
    message: str
    code: str | UnsetType = UNSET
    """Ours, where there is one; the API itself has none."""


class ErrorBody(msgspec.Struct, tag="error"):
    """The whole envelope."""

    error: ErrorDetail
    request_id: str | UnsetType = UNSET


class AnthropicErrors:
    """Encodes errors; the base of the codecs."""

    media_type = "application/json"

    def encode_error(self, error: RequestError, request_id: str) -> bytes:
        """`{"type": "error", "error": {...}, "request_id": ...}`."""
        return msgspec.json.encode(error_body(error, request_id))


def error_body(error: RequestError, request_id: str | UnsetType = UNSET) -> ErrorBody:
    """The envelope of an error."""
    # Coding agents compact their conversation when they read these words.
    message = f"{error.message} (prompt is too long)" if error.code == _TOO_LONG else error.message
    return ErrorBody(ErrorDetail(_type_of(error.status), message, error.code or UNSET), request_id)


def _type_of(status: int) -> str:
    """Anthropic's word for a status."""
    match status:
        case 401:
            return "authentication_error"
        case 403:
            return "permission_error"
        case 404:
            return "not_found_error"
        case 413:
            return "request_too_large"
        case 429:
            return "rate_limit_error"
        case 408 | 504:
            return "timeout_error"
        case 503 | 529:
            return "overloaded_error"
        case _ if status >= 500:
            return "api_error"
        case _:
            return "invalid_request_error"
