"""The OpenAI dialect keeps the contract of all dialects."""

from __future__ import annotations

from typing import ClassVar

from tensorfold.testing.dialects import DialectContract
from tensorfold_dialect_openai import openai_dialect


class TestOpenAI(DialectContract):
    dialect = openai_dialect()
    bodies: ClassVar = {
        "/v1/chat/completions": b'{"messages": [{"role": "user", "content": "hi"}]}',
        "/v1/completions": b'{"prompt": "hi"}',
        "/v1/responses": b'{"input": "hi"}',
    }
    stream_bodies: ClassVar = {
        "/v1/chat/completions": b'{"messages": [{"role": "user", "content": "hi"}], "stream": true, "n": 2}',
        "/v1/completions": b'{"prompt": [[1, 2]], "stream": true}',
        "/v1/responses": b'{"input": "hi", "stream": true}',
    }
    inquiry_bodies: ClassVar = {"/v1/responses/input_tokens": b'{"input": "hi"}'}
