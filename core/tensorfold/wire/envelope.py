"""The error envelope that OpenAI's API has, and with it most that open servers speak."""

from __future__ import annotations

import msgspec

from tensorfold.errors import RequestError

__all__ = ["CommonErrors", "ErrorBody", "error_body"]


class ErrorDetail(msgspec.Struct):
    """What SDKs turn into an exception's fields."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct):
    """The whole envelope."""

    error: ErrorDetail


class CommonErrors:
    """Encodes errors; a base for codecs."""

    media_type = "application/json"

    def encode_error(self, error: RequestError, request_id: str) -> bytes:
        """`{"error": {...}}`; the id stands in the headers."""
        return msgspec.json.encode(error_body(error))


def error_body(error: RequestError) -> ErrorBody:
    """The envelope of an error."""
    return ErrorBody(ErrorDetail(error.message, _type_of(error.status), error.param, error.code))


def _type_of(status: int) -> str:
    """OpenAI's word for a kind of error; it has few."""
    match status:
        case 401:
            return "authentication_error"
        case 403:
            return "permission_error"
        case 429:
            return "rate_limit_error"
        case _ if status >= 500:
            return "server_error"
        case _:
            return "invalid_request_error"
