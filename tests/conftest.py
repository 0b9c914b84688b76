"""What all tests share: they never read this machine's own settings."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _own_environment() -> Iterator[None]:
    """No variable of a user's own server reaches a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TENSORFOLD_") and "_TEST_" not in name]:
            patch.delenv(name)
        yield
