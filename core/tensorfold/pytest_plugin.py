"""What every pytest run on a machine with tensorfold gets: the contracts' assertions explained, and one marker.

Kept apart from `tensorfold.testing`, so that runs which have nothing to do with tensorfold import nothing of it.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tensorfold.testing")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known where `--strict-markers` is on."""
    config.addinivalue_line("markers", "requirement(id, ...): the promises that this test holds, by their numbers")
