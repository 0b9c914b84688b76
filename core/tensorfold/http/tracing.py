"""The trace that a request belongs to, read off its headers."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold.ir import TraceContext

__all__ = ["read_trace"]


def read_trace(headers: Iterable[tuple[bytes, bytes]]) -> TraceContext | None:
    """The caller's `traceparent` and `tracestate`, as they came; None: it sent none, or not exactly one.

    What they say is for those who make traces to judge; `tracestate` may come in several headers, which are one list.
    """
    parents: list[bytes] = []
    states: list[bytes] = []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    if len(parents) != 1 or not parents[0].isascii():
        return None
    return TraceContext(parents[0].decode(), b",".join(states).decode("ascii", "replace"))
