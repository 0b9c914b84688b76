"""Fields that the API has and this server does not serve, with the values that pass; null always does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tensorfold.ir import JSON

__all__ = ["MESSAGES_FIELDS"]

Fields: TypeAlias = Mapping[str, tuple[JSON, ...]]

MESSAGES_FIELDS: Fields = {
    "container": (),
    "mcp_servers": ([],),
    "fallbacks": ([],),
    "compaction": (),
    "thread": (),
    "inference_geo": (),
    "billing_policy": (),
    "service_tier": ("auto", "standard_only"),
    "speed": ("standard",),
}
"""Of `/v1/messages` and `/v1/messages/count_tokens`."""
