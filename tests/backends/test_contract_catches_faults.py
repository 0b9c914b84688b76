"""The backend contract fails for backends that are wrong in the ways in which backends are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.composed import ComposedOps
from tensorfold.compute.composed_plans import BlockPlan
from tensorfold.compute.composed_pure import handle
from tensorfold.compute.packing import DenseLinear
from tensorfold.compute.store import ComposedStore
from tensorfold.contracts.backend import BackendSettings, StateStore, Suitability
from tensorfold.contracts.handles import Activation, Linear
from tensorfold.contracts.ops import Ops, Selection
from tensorfold.contracts.states import Group, PagedSpec, StateSpec, TableKey
from tensorfold.contracts.step import Kind, Step
from tensorfold.testing.backends import BackendContract, Bench
from tensorfold.testing.op_cases import PURE_CASES
from tensorfold.testing.op_state_cases import STATE_CASES
from tensorfold.testing.op_trial import OpCase
from tensorfold.testing.reference import NumpyPrimitives, ReferenceSession

Array = NDArray[Any]


class OneProduct(ComposedOps[Array]):
    """A library's product over all rows, which chooses its kernel by their number."""

    def linear(self, x: Array, weight: Linear, *, wide: bool = False) -> Array:
        packed: DenseLinear[Array] = handle(weight, DenseLinear)
        product: Array = x @ packed.weight.T
        return product if packed.bias is None else product + packed.bias


class Leaning(ComposedOps[Array]):
    """A norm into which a little of the neighbours leaks."""

    def rms_norm(self, x: Array, weight: Array | None, eps: float) -> Array:
        return super().rms_norm(x + np.float32(1e-6) * x.mean(0), weight, eps)


class Cheap(ComposedOps[Array]):
    """A formula that is nearly the activation."""

    def activate(self, x: Array, act: Activation) -> Array:
        return super().activate(x, act) * np.float32(1.001)


class Farsighted(ComposedOps[Array]):
    """A window that is one position too wide."""

    def _seen(self, step: Step[Array], plan: BlockPlan, select: Selection | None, first: int, last: int) -> Array:
        seen = super()._seen(step, plan, select, first, last)
        if plan.key.window is None:
            return seen
        beyond = plan.places(first, last) == plan.positions[first:last, None] - plan.key.window
        wider: Array = seen | beyond.reshape(seen.shape)
        return wider


class Tidy(ComposedOps[Array]):
    """Pages are read in the order of their numbers."""

    def write(self, step: Step[Array], name: str, spec: PagedSpec, plan: BlockPlan, parts: Sequence[Array]) -> None:
        super().write(step, name, spec, plan, parts)
        plan.pages.sort(axis=1)


class Greedy(ComposedStore[Array]):
    """A commit that keeps all rows or none."""

    def commit(self, slot: int, group: Group, start: int, rows: int, length: int) -> None:
        super().commit(slot, group, start, rows, length if length == start else start + rows)


class Unclean(NumpyPrimitives):
    """NaN stays in the pages."""

    def finite(self, x: Array) -> Array:
        return x


class BrokenSession(ReferenceSession):
    """The reference, but for one part."""

    def __init__(self, broken: type[Any]) -> None:
        super().__init__("float32", 64)
        self._operations: type[ComposedOps[Array]] = broken if issubclass(broken, ComposedOps) else ComposedOps
        self._store: type[ComposedStore[Array]] = broken if issubclass(broken, ComposedStore) else ComposedStore
        if issubclass(broken, NumpyPrimitives):
            self.p = broken()

    def composed_ops(self, kind: Kind, store: ComposedStore[Array]) -> Ops[Array]:
        return self._operations(self.p, store)

    def store(self, states: Mapping[str, StateSpec], pages: Mapping[TableKey, int], slots: int) -> StateStore:
        return self._store(self.p, states, pages, slots)


@dataclass(frozen=True)
class BrokenBackend:
    """Opens broken sessions."""

    broken: type[Any]
    name: str = "broken"

    def probe(self) -> Suitability:
        return Suitability(0, "nothing")

    def open(self, settings: BackendSettings) -> BrokenSession:
        return BrokenSession(self.broken)


contract = BackendContract()
FAULTS: list[tuple[type[Any], str, Callable[[Bench, OpCase], None]]] = [
    (OneProduct, "linear wide", lambda bench, case: contract.test_rows_do_not_see_each_other(bench, case, 8)),
    (Leaning, "rms_norm", lambda bench, case: contract.test_rows_do_not_see_each_other(bench, case, 3)),
    (Cheap, "activate gelu", contract.test_rows_agree_with_the_reference),
    (Cheap, "activate gelu", contract.test_chunks_agree_with_the_reference),
    (Farsighted, "attend a window within a page", contract.test_rows_agree_with_the_reference),
    (Tidy, "attend many pages", contract.test_rows_agree_with_the_reference),
    (Greedy, "recent", contract.test_a_commit_keeps_any_number_of_rows),
    (Greedy, "ssd", lambda bench, case: contract.test_rows_do_not_see_each_other(bench, case, 13)),
    (Unclean, "attend grouped heads", contract.test_a_cleared_slot_begins_anew),
]


@pytest.mark.parametrize(("broken", "name", "check"), FAULTS)
def test_a_broken_backend_fails(broken: type[Any], name: str, check: Callable[[Bench, OpCase], None]) -> None:
    """Each fault fails the test that looks for it."""
    case = next(each for each in (*PURE_CASES, *STATE_CASES) if each.name == name)
    with pytest.raises(AssertionError, match=r"differs by|off by"):
        check(Bench(BrokenBackend(broken), BackendSettings()), case)
