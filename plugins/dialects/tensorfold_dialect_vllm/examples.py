"""What the contract of dialects tries this one with."""

from __future__ import annotations

from tensorfold.contracts.examples import DialectExample

__all__ = ["EXAMPLE"]

EXAMPLE = DialectExample(
    dialect="vllm",
    inquiry_bodies={
        "/tokenize": b'{"prompt": "hi"}',
        "/v1/tokenize": b'{"messages": [{"role": "user", "content": "hi"}]}',
        "/detokenize": b'{"tokens": [104]}',
        "/v1/detokenize": b'{"tokens": []}',
    },
)
