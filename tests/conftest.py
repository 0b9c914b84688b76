"""What all tests share: they never read this machine's own settings, and none fails for a busy machine's slowness."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, so that a failure is the change's; a run that asks for a number of them draws others.
settings.register_profile(
    "tensorfold",
    deadline=None,
    derandomize="TENSORFOLD_TEST_EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tensorfold")


@pytest.fixture(autouse=True, scope="session")
def _own_environment() -> Iterator[None]:
    """No variable of a user's own server reaches a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("TENSORFOLD_") and "_TEST_" not in name]:
            patch.delenv(name)
        yield


@pytest.fixture(autouse=True, scope="module")
def _no_old_garbage(request: pytest.FixtureRequest) -> None:
    """What earlier modules left is freed before hypothesis reads the sources of a module's tests.

    It reads them with `ast.parse`, which collects garbage; a task freed then logs its exception, whose traceback is made
    with `ast.parse` too, and Python 3.11 fails with "AST constructor recursion depth mismatch"
    (https://github.com/python/cpython/issues/106905).
    """
    if hasattr(request.module, "given"):
        gc.collect()
