"""What a memory budget gives: windows, lanes and pages."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tensorfold.compute.memory import plan_memory
from tensorfold.contracts.backend import DeviceMemory, Session
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.states import KV, PAGE, Recurrent, StateSpec, TableKey
from tensorfold.errors import ConfigError


class Budget:
    """The part of a session that planning asks: 1 byte a position and KV head width, 1,000 a fixed state."""

    chunk = 128

    def __init__(self, available: int) -> None:
        self._available = available

    def memory(self) -> DeviceMemory:
        return DeviceMemory(total=self._available, available=self._available)

    def page_bytes(self, spec: StateSpec) -> int:
        return PAGE * spec.k_dim if isinstance(spec, KV) else 1000


def session(available: int) -> Session[Any]:
    return cast("Session[Any]", Budget(available))


def geometry(window: int = 1024) -> Geometry:
    states: dict[str, StateSpec] = {
        "0.kv": KV(1, 1, 1),
        "1.kv": KV(1, 1, 1),
        "2.kv": KV(1, 1, 1, window=100),
        "3.state": Recurrent((1,)),
    }
    return Geometry(vocabulary=10, hidden=1, layers=4, window=window, states=states, stop_ids=frozenset())


FULL, SHORT = TableKey("main", None), TableKey("main", 100)


def test_with_room_every_lane_gets_the_whole_window() -> None:
    """Plenty of memory: lanes times the window, and windowed states take their window and a chunk only."""
    plan = plan_memory(geometry(), session(10**9), lanes=4)
    assert plan.window == 1024
    assert plan.positions == 4 * 1024
    assert plan.pages == {FULL: 4 * 16, SHORT: 4 * 5}
    assert plan.bytes == 4 * 1000 + 64 * 2 * PAGE + 20 * PAGE
    assert not plan.shortened


def test_short_memory_is_shared_and_one_sequence_still_reaches_the_window() -> None:
    """The first lane's window comes before the other lanes' share."""
    plan = plan_memory(geometry(), session(0), lanes=4, budget=4 * 1000 + 24 * 2 * PAGE + 5 * PAGE)
    assert plan.window == 1024
    assert 16 <= plan.pages[FULL] < 64
    assert plan.bytes <= 4 * 1000 + 24 * 2 * PAGE + 5 * PAGE


def test_a_window_that_cannot_fit_is_cut_to_whole_pages() -> None:
    """Without --context the window shrinks to what fits, and says so."""
    plan = plan_memory(geometry(), session(0), lanes=1, budget=1000 + 5 * 2 * PAGE + 5 * PAGE)
    assert plan.window == 5 * PAGE
    assert plan.shortened


@pytest.mark.requirement("T-267")
def test_context_makes_the_window_smaller() -> None:
    """--context N is the window, and pools are sized for it."""
    plan = plan_memory(geometry(), session(10**9), lanes=2, context=200)
    assert plan.window == 200
    assert plan.pages[FULL] == 2 * 4
    assert not plan.shortened


@pytest.mark.parametrize("context", [0, -1, 1025])
def test_a_context_out_of_range_is_refused(context: int) -> None:
    """Below one and above the checkpoint's window there is nothing to serve."""
    with pytest.raises(ConfigError, match=f"--context is {context}"):
        plan_memory(geometry(), session(10**9), lanes=1, context=context)


def test_a_context_that_was_asked_for_and_does_not_fit_is_refused_with_numbers() -> None:
    """An explicit window is not cut behind the user's back."""
    with pytest.raises(ConfigError, match="at most 320 positions fit"):
        plan_memory(geometry(), session(0), lanes=1, context=1024, budget=1000 + 5 * 2 * PAGE + 5 * PAGE)


def test_copies_of_fixed_size_states_have_room_of_their_own() -> None:
    """Kept prefixes need them: unasked an eighth of the budget at most, and never at the window's cost."""
    roomy = plan_memory(geometry(), session(10**9), lanes=2)
    assert roomy.copies == 4 * 2 * 1000
    assert roomy.window == 1024
    tight = plan_memory(geometry(), session(0), lanes=1, budget=1000 + 16 * 2 * PAGE + 5 * PAGE)
    assert (tight.window, tight.copies) == (1024, 0)
    assert plan_memory(geometry(), session(10**9), lanes=2, copies=0).copies == 0
    assert plan_memory(geometry(), session(10**9), lanes=2, copies=5000).copies == 5000


@pytest.mark.requirement("T-269")
def test_a_reserve_takes_the_place_of_the_share_that_is_left_alone() -> None:
    """What is free less the reserve, whatever that is."""
    usual = plan_memory(geometry(), session(100_000), lanes=64)
    generous = plan_memory(geometry(), session(100_000), lanes=64, reserve=5_000)
    careful = plan_memory(geometry(), session(100_000), lanes=64, reserve=34_000)
    assert usual.bytes + usual.copies <= 80_000
    assert 80_000 < generous.bytes + generous.copies <= 95_000
    assert careful.bytes + careful.copies <= 66_000
    with pytest.raises(ConfigError, match="0 are there"):
        plan_memory(geometry(), session(100_000), lanes=1, reserve=200_000)


@pytest.mark.requirement("T-142")
def test_lanes_are_as_many_as_fit_unless_it_is_said_how_many() -> None:
    """Eight, or as many as leave half of the memory for pages."""
    assert plan_memory(geometry(), session(10**9), lanes=None).lanes == 8
    assert plan_memory(geometry(), session(0), lanes=None, budget=10_000).lanes == 5
    assert plan_memory(geometry(), session(10**9), lanes=20).lanes == 20


@pytest.mark.requirement("T-268")
def test_fewer_lanes_need_less_memory() -> None:
    """`--parallel N` makes what is set aside smaller."""
    sizes = [plan_memory(geometry(), session(10**9), lanes=lanes).bytes for lanes in (1, 2, 4, 8)]
    assert sizes == sorted(set(sizes))
