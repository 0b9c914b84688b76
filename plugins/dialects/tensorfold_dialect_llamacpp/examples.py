"""What the contract of dialects tries this one with."""

from __future__ import annotations

from tensorfold.contracts.examples import DialectExample

__all__ = ["EXAMPLE"]

_MESSAGES = b'{"messages": [{"role": "user", "content": "hi"}]}'

EXAMPLE = DialectExample(
    dialect="llamacpp", inquiry_bodies={"/apply-template": _MESSAGES, "/v1/apply-template": _MESSAGES}
)
