"""What one key may take: a bucket of requests, a bucket of tokens, a number of requests at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from tensorfold.contracts.observe import Outcome
from tensorfold.errors import ConfigError, Rejected
from tensorfold.ir import Request

__all__ = ["KeyLimits", "Limit"]

MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """0 stands for no limit."""

    requests_per_minute: float = 0.0
    tokens_per_minute: float = 0.0
    at_once: int = 0

    def __post_init__(self) -> None:
        if min(self.requests_per_minute, self.tokens_per_minute, self.at_once) < 0:
            raise ConfigError("the limits of [extras.limits] may not be negative; 0 means none")

    @property
    def any(self) -> bool:
        """Whether there is one."""
        return bool(self.requests_per_minute or self.tokens_per_minute or self.at_once)


@dataclass(slots=True)
class _Bucket:
    """Fills with time up to a minute's worth. May go below zero, since tokens are known only afterwards."""

    per_minute: float
    level: float
    at: float
    """Seconds of the last look."""

    def fill(self, now: float) -> None:
        self.level = min(self.level + (now - self.at) * self.per_minute / MINUTE, max(self.per_minute, 1.0))
        self.at = now

    def seconds_to(self, level: float) -> float:
        return (level - self.level) * MINUTE / self.per_minute


@dataclass(slots=True)
class _Use:
    """One key's."""

    requests: _Bucket
    tokens: _Bucket
    running: set[str] = field(default_factory=set[str])
    """Ids of requests in progress."""


class KeyLimits:
    """Implements `RequestFilter`, and `Observer` to be told of ends. Called on the event loop alone.

    Callers are told apart by their keys' labels; without keys all are one.
    """

    name = "key-limits"

    def __init__(
        self, limit: Limit, *, unlimited: Collection[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`unlimited`: labels of keys that are free. `clock`: seconds that never go back."""
        self._limit = limit
        self._unlimited = frozenset(unlimited)
        self._clock = clock
        self._uses: dict[str, _Use] = {}

    def apply(self, request: Request) -> Request:
        """The request as it is.

        Raises:
            Rejected: its key has used up what it may take (429).
        """
        label = request.principal or ""
        if label in self._unlimited:
            return request
        use, limit = self._use(label), self._limit
        if limit.at_once and len(use.running) >= limit.at_once:
            raise _refusal(f"{limit.at_once} requests at once", 1.0)
        if limit.tokens_per_minute and use.tokens.level <= 0:
            raise _refusal(f"{limit.tokens_per_minute:g} tokens a minute", use.tokens.seconds_to(1.0))
        if limit.requests_per_minute:
            if use.requests.level < 1.0:
                raise _refusal(f"{limit.requests_per_minute:g} requests a minute", use.requests.seconds_to(1.0))
            use.requests.level -= 1.0
        return request

    def started(self, request: Request, endpoint: str) -> None:
        """It counts as in progress."""
        if (label := request.principal or "") not in self._unlimited:
            self._use(label).running.add(request.id)

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        """It does no more, and its tokens are known."""
        if (label := request.principal or "") in self._unlimited:
            return
        use = self._use(label)
        use.running.discard(request.id)
        if outcome.usage is not None:
            use.tokens.level -= outcome.usage.prompt_tokens + outcome.usage.completion_tokens

    def _use(self, label: str) -> _Use:
        """Labels are those of configured keys, so that there are never many."""
        now, limit = self._clock(), self._limit
        use = self._uses.get(label)
        if use is None:
            use = self._uses[label] = _Use(
                _Bucket(limit.requests_per_minute, max(limit.requests_per_minute, 1.0), now),
                _Bucket(limit.tokens_per_minute, limit.tokens_per_minute, now),
            )
        use.requests.fill(now)
        use.tokens.fill(now)
        return use


def _refusal(what: str, seconds: float) -> Rejected:
    return Rejected(
        f"this key may have {what}: try again later", status=429, retry_after=seconds, code="rate_limit_exceeded"
    )
