"""The Anthropic dialect keeps the contract of all dialects."""

from __future__ import annotations

from typing import ClassVar

from tensorfold.testing.dialects import DialectContract
from tensorfold_dialect_anthropic import anthropic_dialect


class TestAnthropic(DialectContract):
    dialect = anthropic_dialect()
    bodies: ClassVar = {"/v1/messages": b'{"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}'}
    stream_bodies: ClassVar = {
        "/v1/messages": b'{"max_tokens": 8, "messages": [{"role": "user", "content": "hi"}], "stream": true}'
    }
    inquiry_bodies: ClassVar = {"/v1/messages/count_tokens": b'{"messages": [{"role": "user", "content": "hi"}]}'}
