"""What the contract of dialects tries this one with."""

from __future__ import annotations

from tensorfold.contracts.examples import DialectExample

__all__ = ["EXAMPLE"]

_HI = b'"messages": [{"role": "user", "content": "hi"}]'

EXAMPLE = DialectExample(
    dialect="anthropic",
    bodies={"/v1/messages": b'{"max_tokens": 8, %b}' % _HI},
    stream_bodies={"/v1/messages": b'{"max_tokens": 8, %b, "stream": true}' % _HI},
    inquiry_bodies={"/v1/messages/count_tokens": b"{%b}" % _HI},
)
