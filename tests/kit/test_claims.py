"""Every claim of every contract says what is meant and what to do."""

from __future__ import annotations

import inspect

import pytest

from tensorfold.testing.auth import AuthSourceContract
from tensorfold.testing.backends import BackendContract
from tensorfold.testing.dialects import DialectContract
from tensorfold.testing.families import ModelFamilyContract
from tensorfold.testing.filters import RequestFilterContract
from tensorfold.testing.observers import ObserverContract
from tensorfold.testing.plugins import PluginContract
from tensorfold.testing.policies import SchedulerPolicyContract

CONTRACTS: tuple[type, ...] = (
    *(AuthSourceContract, BackendContract, DialectContract, ModelFamilyContract, ObserverContract, PluginContract),
    *(RequestFilterContract, SchedulerPolicyContract),
)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_claim_has_a_meaning_and_a_remedy(contract: type) -> None:
    """In its docstring, as `tensorfold check` prints them."""
    claims = {name: value for name, value in vars(contract).items() if name.startswith("test_")}
    assert len(claims) > 3
    for name, claim in claims.items():
        meaning, fix, remedy = (inspect.getdoc(claim) or "").partition("Fix: ")
        assert meaning.strip() and fix and remedy.rstrip().endswith("."), name
