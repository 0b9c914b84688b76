"""The reference backend passes the contract that it is the measure of."""

from __future__ import annotations

import pytest

from tensorfold.contracts.backend import BackendSettings
from tensorfold.errors import ConfigError
from tensorfold.testing.backends import BackendContract
from tensorfold.testing.reference import ReferenceBackend


class TestReference(BackendContract):
    """numpy in float32 against numpy in float64."""

    backend = ReferenceBackend()


def test_the_reference_declines_what_it_is_not() -> None:
    """Another device and another type are refused by their names."""
    with pytest.raises(ConfigError, match="'cuda'"):
        ReferenceBackend().open(BackendSettings(device="cuda"))
    with pytest.raises(ConfigError, match="'bfloat16'"):
        ReferenceBackend().open(BackendSettings(dtype="bfloat16"))
