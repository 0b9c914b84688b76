"""What tensorfold ships passes what `tensorfold check` tries a plugin with, all of it at once."""

from __future__ import annotations

from typing import Final

import pytest

from tensorfold.plugins import find_installed
from tensorfold.testing.auth import AuthSourceContract
from tensorfold.testing.backends import BackendContract
from tensorfold.testing.checking import contracts_of
from tensorfold.testing.dialects import DialectContract
from tensorfold.testing.families import ModelFamilyContract

SUITES: Final = contracts_of("tensorfold")
CONTRACTS: Final = {
    "models": (ModelFamilyContract, "model family"),
    "backends": (BackendContract, "backend"),
    "dialects": (DialectContract, "dialect"),
    "auth": (AuthSourceContract, "auth source"),
}

for _name, _suite in SUITES.items():
    # The tests of backends and families hold them to the same contract, in more ways and in less time.
    if not issubclass(_suite, BackendContract):
        globals()[_name] = pytest.mark.slow(_suite) if issubclass(_suite, ModelFamilyContract) else _suite


@pytest.mark.parametrize(
    ("kind", "name"), [(each.kind, each.name) for each in find_installed() if each.kind in CONTRACTS]
)
def test_each_of_our_plugins_says_what_to_try_it_with(kind: str, name: str) -> None:
    """Its contract stands there, and not what stands in for one that has nothing to try."""
    contract, word = CONTRACTS[kind]
    assert [suite for suite in SUITES.values() if suite.__doc__ == f"{word} {name}" and issubclass(suite, contract)]
