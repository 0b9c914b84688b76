"""Logs as a server writes them: without the local variables of a traceback, which take seconds to print."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import structlog

from tensorfold.observe import configure_logs


@pytest.fixture(autouse=True)
def log() -> Iterator[io.StringIO]:
    """What is logged, as JSON lines."""
    stream = io.StringIO()
    configure_logs("json", "info", stream)
    yield stream
    structlog.reset_defaults()
