"""What the contract of auth sources tries this one with."""

from __future__ import annotations

from tensorfold.contracts.examples import AuthExample

__all__ = ["EXAMPLE"]

EXAMPLE = AuthExample(
    source="keys",
    accepted={"sk-flag": "cli-1", "sk-env": "env-1"},
    settings={"auth.keys": {"api_key": ("sk-flag",), "api_key_variable": ("sk-env",)}},
)
