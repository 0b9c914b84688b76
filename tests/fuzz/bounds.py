"""How much is tried, and how long one input may take. `TENSORFOLD_TEST_EXAMPLES=20000` tries more."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator

from hypothesis import HealthCheck, settings

__all__ = ["EXAMPLES", "fuzzed", "within_a_second"]

EXAMPLES = int(os.environ.get("TENSORFOLD_TEST_EXAMPLES", "40"))

fuzzed = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@contextlib.contextmanager
def within_a_second(seconds: float = 1.0) -> Generator[None]:
    """Hold that a block takes no longer: of this thread's own processor time, so that a busy machine changes nothing."""
    began = time.thread_time()
    yield
    assert time.thread_time() - began < seconds, "it took too long"
