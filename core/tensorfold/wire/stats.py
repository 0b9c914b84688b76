"""How fast a reply was, in words that are the same in every API: a part of the `tensorfold` block that answers carry."""

from __future__ import annotations

import msgspec

from tensorfold.ir import Timings, Usage

__all__ = ["ReplyStats"]


class ReplyStats(msgspec.Struct):
    """Of all choices of a request together."""

    time_to_first_token_ms: float
    """From the request's arrival, its time in the queue included."""
    tokens_per_second: float
    """Generated ones, between the first token and the end; 0: there was no such time."""
    drafted_tokens: int
    """Draft tokens that were verified; 0: the reply was computed one token a step."""
    accepted_tokens: int
    """Of those, the ones that were kept."""

    @staticmethod
    def of(usage: Usage, timings: Timings) -> ReplyStats:
        """Of the last event of a reply."""
        rate = usage.completion_tokens / timings.decode if timings.decode > 0 else 0.0
        return ReplyStats(
            time_to_first_token_ms=round((timings.queued + timings.prefill) * 1000, 3),
            tokens_per_second=round(rate, 3),
            drafted_tokens=usage.drafted_tokens,
            accepted_tokens=usage.accepted_tokens,
        )
