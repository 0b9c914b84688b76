"""ACME's manners: longest wait first, no background work for strangers, and a count of what was served."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from tensorfold import hookimpl
from tensorfold.contracts.observe import Observer, Outcome
from tensorfold.contracts.policy import Load, RequestFilter, Running, SchedulerPolicy, Waiting
from tensorfold.contracts.settings import PluginSettings
from tensorfold.errors import Rejected
from tensorfold.ir import Request


class AcmePolicy:
    """Whoever was passed over most is next."""

    name = "acme"

    def admit(self, request: Request, load: Load) -> None:
        """A hundred may wait."""
        if load.waiting >= 100:
            raise Rejected("a hundred are waiting")

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        """By passes, then by arrival."""
        return sorted(waiting, key=lambda each: (-each.passed_over, each.arrived))

    def victim(self, running: Sequence[Running], wanting: Waiting | None) -> Running | None:
        """The one that holds most, when memory is short."""
        return max(running, key=lambda each: each.tokens, default=None) if wanting is None else None


class AcmeFilter:
    """Strangers' work is background work."""

    name = "acme"

    def apply(self, request: Request) -> Request:
        """The same request, with another priority."""
        return request if request.principal else msgspec.structs.replace(request, priority="background")


class AcmeCounter:
    """How many tokens were served."""

    def __init__(self) -> None:
        self.tokens = 0

    def started(self, request: Request, endpoint: str) -> None:
        """Not yet."""

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        """So many more."""
        if outcome.usage is not None:
            self.tokens += outcome.usage.completion_tokens


@hookimpl
def tensorfold_scheduler_policies(settings: PluginSettings) -> Iterable[SchedulerPolicy]:
    """One policy."""
    yield AcmePolicy()


@hookimpl
def tensorfold_request_filters(settings: PluginSettings) -> Iterable[RequestFilter]:
    """One filter."""
    yield AcmeFilter()


@hookimpl
def tensorfold_observers(settings: PluginSettings) -> Iterable[Observer]:
    """One observer."""
    yield AcmeCounter()
