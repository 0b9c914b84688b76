"""What the contract of dialects tries this one with."""

from __future__ import annotations

from tensorfold.contracts.examples import DialectExample

__all__ = ["EXAMPLE"]

EXAMPLE = DialectExample(
    dialect="openai",
    bodies={
        "/v1/chat/completions": b'{"messages": [{"role": "user", "content": "hi"}]}',
        "/v1/completions": b'{"prompt": "hi"}',
        "/v1/responses": b'{"input": "hi"}',
    },
    stream_bodies={
        "/v1/chat/completions": b'{"messages": [{"role": "user", "content": "hi"}], "stream": true, "n": 2}',
        "/v1/completions": b'{"prompt": [[1, 2]], "stream": true}',
        "/v1/responses": b'{"input": "hi", "stream": true}',
    },
    inquiry_bodies={"/v1/responses/input_tokens": b'{"input": "hi"}'},
)
