"""Structured logs, for people and as JSON lines."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from tensorfold.observe import LogFormat, configure_logs


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Logs are the process's: what a test sets up ends with it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level


def test_json_lines_have_the_event_its_facts_and_what_is_bound() -> None:
    stream = io.StringIO()
    configure_logs("json", stream=stream)
    with structlog.contextvars.bound_contextvars(request_id="r1", label="alice"):
        structlog.get_logger().info("request", status=200)
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "request", "level": "info", "status": 200, "request_id": "r1", "label": "alice"}


def test_console_lines_are_for_people() -> None:
    stream = io.StringIO()
    configure_logs("console", stream=stream)
    structlog.get_logger().warning("look out", port=8080)
    assert "[warning" in stream.getvalue()
    assert "port=8080" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_less_than_the_level_is_not_written() -> None:
    stream = io.StringIO()
    configure_logs("json", "warning", stream)
    structlog.get_logger().info("quiet")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("format", ["json", "console"])
def test_other_libraries_warnings_join_in_the_same_form(format: LogFormat) -> None:
    stream = io.StringIO()
    configure_logs(format, "debug", stream)
    logging.getLogger("foreign").info("chatter")
    logging.getLogger("foreign").warning("the %s is low", "disk")
    (line,) = stream.getvalue().splitlines()
    assert "the disk is low" in line
    if format == "json":
        assert json.loads(line)["level"] == "warning"


@pytest.mark.parametrize("format", ["json", "console"])
def test_tracebacks_do_not_show_local_variables(format: LogFormat) -> None:
    stream = io.StringIO()
    configure_logs(format, stream=stream)

    def fail() -> None:
        key = "sk-very-" + "secret"
        raise ValueError(f"a key of {len(key)} characters")

    try:
        fail()
    except ValueError:
        structlog.get_logger().exception("a fault")
    assert "ValueError" in stream.getvalue()
    assert "sk-very-secret" not in stream.getvalue()
