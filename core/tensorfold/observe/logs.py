"""Logs through structlog, for people or as JSON lines; what other libraries log through `logging` joins them."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Literal, TextIO, TypeAlias, cast

import structlog
from structlog.typing import Processor

__all__ = ["LogFormat", "configure_logs"]

LogFormat: TypeAlias = Literal["console", "json"]


def configure_logs(format: LogFormat = "console", level: str = "info", stream: TextIO | None = None) -> None:
    """Set up the process's logs, once, in `main`.

    Args:
        format: lines for people, or one JSON object a line.
        level: debug, info, warning or error; other libraries never say less than warnings.
        stream: where to; None: standard error, so that a command's own output stays clean.
    """
    target = cast("TextIO", Lenient(stream or sys.stderr))
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer = _renderer(format, colors=target.isatty())
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.WriteLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(number, logging.WARNING))


class Lenient:
    """A stream whose full disk or lost reader costs lines of the log, and never a request."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or lose the text."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):  # full, gone, or closed
            return 0

    def flush(self) -> None:
        """Flush, or lose what waits."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        """Whether people read it."""
        return self._stream.isatty()


def _renderer(format: LogFormat, colors: bool) -> list[Processor]:
    # Tracebacks without local variables: those hold prompts and keys.
    match format:
        case "json":
            plain = structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            )
            return [plain, structlog.processors.JSONRenderer()]
        case "console":
            return [
                structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
            ]
