"""What the contract of dialects tries this one with."""

from __future__ import annotations

from tensorfold.contracts.examples import DialectExample

__all__ = ["EXAMPLE"]

EXAMPLE = DialectExample(
    dialect="ollama",
    bodies={
        "/api/chat": b'{"messages": [{"role": "user", "content": "hi"}], "stream": false}',
        "/api/generate": b'{"prompt": "hi", "stream": false}',
    },
    stream_bodies={
        "/api/chat": b'{"messages": [{"role": "user", "content": "hi"}]}',
        "/api/generate": b'{"prompt": "hi", "stream": null}',
    },
    inquiry_bodies={"/api/show": b'{"model": "m"}'},
)
