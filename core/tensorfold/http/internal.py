"""The error of faults that are ours."""

from __future__ import annotations

from tensorfold.errors import RequestError

__all__ = ["internal_error"]


def internal_error() -> RequestError:
    """What a client is told of a fault of ours: nothing of its inside."""
    error = RequestError("the server failed to answer this request; the fault is in its log")
    error.status, error.type = 500, "server_error"
    return error
