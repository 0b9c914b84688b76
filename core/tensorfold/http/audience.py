"""Everybody who sees requests on their way: filters may change or refuse them, observers are told of start and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import structlog

from tensorfold.contracts.observe import Observer, Outcome
from tensorfold.contracts.policy import RequestFilter
from tensorfold.errors import PluginConflict
from tensorfold.ir import Request

__all__ = ["Audience"]


class Audience:
    """Asks filters in the order of their names, and tells observers; what an observer raises harms nobody."""

    def __init__(self, filters: Sequence[RequestFilter], observers: Sequence[Observer]) -> None:
        self._filters = tuple(sorted(filters, key=lambda each: each.name))
        names = [each.name for each in self._filters]
        if twice := {name for name in names if names.count(name) > 1}:
            raise PluginConflict(f"two request filters are called {', '.join(sorted(twice))}")
        self._observers = (*observers, *(each for each in self._filters if isinstance(each, Observer)))

    def admit(self, request: Request) -> Request:
        """The request as the filters leave it.

        Raises:
            RequestError: a filter refuses it.
        """
        for each in self._filters:
            request = each.apply(request)
        return request

    def started(self, request: Request, endpoint: str) -> None:
        """A request is about to be submitted."""
        for observer in self._observers:
            _tell(observer, partial(observer.started, request, endpoint))

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        """It has ended, in whatever way."""
        for observer in self._observers:
            _tell(observer, partial(observer.ended, request, endpoint, outcome))


def _tell(observer: Observer, call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001 - a count that fails must not end the reply that it counts
        structlog.get_logger().exception("an observer failed", observer=type(observer).__name__)
