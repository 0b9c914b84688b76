"""The radix tree against a plain dictionary of sequences."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tensorfold.engine.prefix import PrefixTree, agreement

IDS = st.lists(st.integers(0, 2), max_size=12).map(tuple)


def naive(one: Sequence[int], other: Sequence[int]) -> int:
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


@given(IDS, IDS, st.integers(0, 3))
def test_agreement_counts_the_tokens_in_common(one: tuple[int, ...], other: tuple[int, ...], start: int) -> None:
    start = min(start, len(one), len(other))
    assert agreement(one, other, start) == naive(one[start:], other[start:])


class Value:
    """Something that is kept."""


class Trees(RuleBasedStateMachine):
    """Sequences come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.tree: PrefixTree[Value] = PrefixTree()
        self.model: dict[tuple[int, ...], Value] = {}

    @rule(ids=IDS)
    def put(self, ids: tuple[int, ...]) -> None:
        value = Value()
        if ids in self.model:
            with pytest.raises(KeyError):
                self.tree.put(ids, value)
        else:
            self.tree.put(ids, value)
            self.model[ids] = value

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        ids = data.draw(st.sampled_from(sorted(self.model)))
        self.tree.remove(self.model.pop(ids))

    @rule(ids=IDS)
    def look(self, ids: tuple[int, ...]) -> None:
        prefixes = sorted((each for each in self.model if ids[: len(each)] == each), key=len, reverse=True)
        assert list(self.tree.along(ids)) == [self.model[each] for each in prefixes]
        assert self.tree.common(ids) == max((naive(ids, each) for each in self.model), default=0)

    @invariant()
    def it_holds_what_was_put(self) -> None:
        assert set(self.tree.values()) == set(self.model.values())
        assert len(self.tree) == len(self.model)


TestTrees = Trees.TestCase
TestTrees.settings = settings(max_examples=80, stateful_step_count=30)


def test_removing_everything_leaves_an_empty_tree() -> None:
    """No path outlives its values."""
    tree: PrefixTree[Value] = PrefixTree()
    values = {ids: Value() for ids in ((1, 2, 3), (1, 2), (1, 2, 4, 5), (7,))}
    for ids, value in values.items():
        tree.put(ids, value)
    for value in values.values():
        tree.remove(value)
    assert tree.common((1, 2, 3)) == 0
