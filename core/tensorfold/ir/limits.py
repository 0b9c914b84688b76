"""Where a reply ends."""

from __future__ import annotations

from typing import Literal

import msgspec

from tensorfold.errors import InvalidRequest

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True):
    """Where a reply ends."""

    max_tokens: int | None = None
    """The explicit reply limit; None: the server's default, cut to the room left."""
    min_tokens: int = 0
    """End tokens are masked before this many tokens; stop strings are not."""
    stop: tuple[str, ...] = ()
    """The reply stops at any of these and leaves the matched text out."""
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    """Turn off the model's own end tokens; the limit and stop strings still hold."""
    thinking_budget: int | None = None
    """The most tokens inside reasoning; None: the server's default."""
    overflow: Literal["refuse", "cut"] = "refuse"
    """What happens to an explicit limit past the window: a refusal, or it is cut to the room left."""
    include_stop_str: bool = False
    """Keep the matched stop text in the reply."""
    stop_after_output: bool = False
    """End at the first text that the reply produces; never within a character."""
    loop_detect: bool | None = None
    """Stop a reply that only repeats itself; None: unless `ignore_eos` is set."""
    loop_detect_error: bool = False
    """Fail the request when that happens, instead of ending the reply."""

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequest(f"max_tokens is {self.max_tokens}, and must be at least 1", param="max_tokens")
        if self.min_tokens < 0:
            raise InvalidRequest(f"min_tokens is {self.min_tokens}, and must not be negative", param="min_tokens")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens is {self.min_tokens}, more than max_tokens, {self.max_tokens}", param="min_tokens"
            )
        if any(not text for text in self.stop):
            raise InvalidRequest("stop holds an empty string, which would stop every reply at once", param="stop")
        if self.thinking_budget is not None and self.thinking_budget < 0:
            raise InvalidRequest("thinking_budget must not be negative", param="thinking_budget")
