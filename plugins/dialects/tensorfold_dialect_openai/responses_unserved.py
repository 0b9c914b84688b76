"""Fields of Responses that this server does not serve, with the values that pass; null always does."""

from __future__ import annotations

from collections.abc import Mapping

from tensorfold.ir import JSON
from tensorfold_dialect_openai.unserved import SHARED_FIELDS

__all__ = ["RESPONSES_FIELDS"]

RESPONSES_FIELDS: Mapping[str, tuple[JSON, ...]] = {
    "background": (False,),
    "background_options": (),
    "conversation": (),
    "prompt": (),
    "truncation": ("disabled",),
    "top_logprobs": (0,),
    "context_management": ([],),
    "access_programs": ([],),
    "image": (),
    **SHARED_FIELDS,
}
