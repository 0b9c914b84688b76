"""The fake family keeps the contract that families keep, and does use every kind of state."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.states import KV, Conv, IndexKeys, Latent, Recent, Recurrent
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_tensors
from tensorfold.testing.families import ModelFamilyContract, TinyCheckpoint
from tensorfold.testing.random_tensors import RandomTensors


class TestFakeFamily(ModelFamilyContract):
    """On every backend."""

    @pytest.fixture
    def session(self, each_session: Session[Any]) -> Session[Any]:
        """Every backend."""
        return each_session

    @pytest.fixture
    def family(self) -> ModelFamily:
        """The fake family."""
        return FakeFamily()

    @pytest.fixture
    def checkpoint(self) -> TinyCheckpoint:
        """Random weights."""
        config = fake_config()
        return TinyCheckpoint(config, RandomTensors(fake_tensors(config)))


def test_it_uses_every_kind_of_state_in_both_groups() -> None:
    """Each kind once at least; the draft group has pages and a fixed-size state."""
    states = FakeFamily().geometry(fake_config()).states.values()
    assert {type(spec) for spec in states} == {KV, Latent, IndexKeys, Conv, Recent, Recurrent}
    assert {type(spec) for spec in states if spec.group == "draft"} == {KV, Conv, Recurrent}
    assert {spec.window for spec in states if isinstance(spec, KV)} == {None, 24}
