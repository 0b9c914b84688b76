"""The contracts for policies, filters and observers hold for ours, and let no fault through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tensorfold.contracts.observe import Observer, Outcome
from tensorfold.contracts.policy import Load, RequestFilter, Running, SchedulerPolicy, Waiting
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.errors import Forbidden
from tensorfold.ir import Request
from tensorfold.testing.filters import RequestFilterContract
from tensorfold.testing.observers import ObserverContract
from tensorfold.testing.policies import SchedulerPolicyContract


class TestDefaultPolicy(SchedulerPolicyContract):
    """The policy of every server."""

    @pytest.fixture
    def policy(self) -> SchedulerPolicy:
        return DefaultPolicy()


class Presets:
    """A filter as somebody would write it."""

    name = "presets"

    def apply(self, request: Request) -> Request:
        """Strangers are refused, the others get no background."""
        if request.principal is None and request.choices > 1:
            raise Forbidden("only those with a key may ask for several choices")
        return msgspec.structs.replace(request, priority="foreground")


class TestPresets(RequestFilterContract):
    """A filter that changes and refuses."""

    @pytest.fixture
    def filter(self) -> RequestFilter:
        return Presets()


class Counter:
    """An observer as somebody would write it."""

    def __init__(self) -> None:
        self.open: set[str] = set()
        self.tokens = 0

    def started(self, request: Request, endpoint: str) -> None:
        """One more."""
        self.open.add(request.id)

    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        """One less."""
        self.open.discard(request.id)
        self.tokens += 0 if outcome.usage is None else outcome.usage.completion_tokens


class TestCounter(ObserverContract):
    """An observer with a state."""

    @pytest.fixture
    def observer(self) -> Observer:
        return Counter()


# ---- faults -----------------------------------------------------------------------------------------------


class Drops(DefaultPolicy):
    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        return waiting[:-1]


class Doubles(DefaultPolicy):
    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        return [*waiting, *waiting[:1]]


class Moody(DefaultPolicy):
    calls = 0

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        self.calls += 1
        return sorted(waiting, key=lambda each: each.arrived, reverse=bool(self.calls % 2))


class Invents(DefaultPolicy):
    def victim(self, running: Sequence[Running], wanting: Waiting | None) -> Running | None:
        return Running("nobody", "foreground", 0.0, 1)


class Spares(DefaultPolicy):
    def victim(self, running: Sequence[Running], wanting: Waiting | None) -> Running | None:
        return None


class Closed(DefaultPolicy):
    def admit(self, request: Request, load: Load) -> None:
        raise PermissionError


class Shortest(DefaultPolicy):
    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        return sorted(waiting, key=lambda each: each.tokens_left)


class Newest(DefaultPolicy):
    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        return sorted(waiting, key=lambda each: -each.arrived)


class Raises(DefaultPolicy):
    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        raise ZeroDivisionError


CLAIMS = SchedulerPolicyContract()


@pytest.mark.parametrize(
    ("policy", "claim"),
    [
        (Drops(), CLAIMS.test_an_order_is_a_permutation_of_those_who_wait),
        (Doubles(), CLAIMS.test_an_order_is_a_permutation_of_those_who_wait),
        (Moody(), CLAIMS.test_an_order_follows_from_the_numbers_alone),
        (Invents(), CLAIMS.test_a_victim_is_one_of_those_who_run),
        (Spares(), CLAIMS.test_somebody_yields_when_memory_is_short),
        (Raises(), CLAIMS.test_replies_through_the_engine_are_those_of_the_default_policy),
        (Shortest(), lambda policy: CLAIMS.test_nobody_is_passed_over_for_ever(policy, 20_480)),
        (Newest(), lambda policy: CLAIMS.test_nobody_is_passed_over_for_ever(policy, 30)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, DefaultPolicy) else "",
)
def test_a_faulty_policy_is_caught(policy: SchedulerPolicy, claim: Any) -> None:
    with pytest.raises(AssertionError):
        claim(policy)


def test_a_policy_that_lets_nobody_in_is_caught() -> None:
    with pytest.raises(PermissionError):
        CLAIMS.test_an_idle_server_lets_a_request_in(Closed())
    with pytest.raises(PermissionError):
        CLAIMS.test_a_refusal_is_a_rejection(Closed())


class Renames(Presets):
    def apply(self, request: Request) -> Request:
        return msgspec.structs.replace(request, id="mine")


class Nothing(Presets):
    def apply(self, request: Request) -> Any:
        return None


class Later(Presets):
    async def apply(self, request: Request) -> Any:  # type: ignore[override]
        return request


class Breaks(Presets):
    def apply(self, request: Request) -> Request:
        raise KeyError(request.id)


FILTER_CLAIMS = RequestFilterContract()


@pytest.mark.parametrize(
    ("filter", "claim"),
    [
        (Renames(), FILTER_CLAIMS.test_who_asks_and_what_for_stay_the_same),
        (Nothing(), FILTER_CLAIMS.test_a_request_is_passed_on_or_refused),
        (Later(), FILTER_CLAIMS.test_it_answers_at_once),
        (Breaks(), FILTER_CLAIMS.test_a_request_over_http_is_answered_or_refused),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Presets) else "",
)
def test_a_faulty_filter_is_caught(filter: RequestFilter, claim: Any) -> None:
    with pytest.raises(AssertionError):
        claim(filter)


class Careless(Counter):
    def ended(self, request: Request, endpoint: str, outcome: Outcome) -> None:
        assert outcome.usage is not None
        self.tokens += outcome.usage.completion_tokens


class OneAtATime(Counter):
    def started(self, request: Request, endpoint: str) -> None:
        assert not self.open
        self.open.add(request.id)


OBSERVER_CLAIMS = ObserverContract()


def test_a_faulty_observer_is_caught() -> None:
    with pytest.raises(AssertionError):
        OBSERVER_CLAIMS.test_every_outcome_can_be_told(Careless())
    with pytest.raises(AssertionError):
        OBSERVER_CLAIMS.test_requests_may_overlap(OneAtATime())
    with pytest.raises(AssertionError):
        OBSERVER_CLAIMS.test_over_http_it_raises_nothing(Careless(), "failed")
