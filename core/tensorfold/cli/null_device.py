"""A stream that can be written no more, at the null device, so that Python's last flush at exit cannot fail."""

from __future__ import annotations

import os
from typing import TextIO

__all__ = ["silence"]


def silence(stream: TextIO) -> None:
    """Send what is left in `stream`, and all that follows, to the null device; otherwise Python would try to write it
    once more at exit, and turn any exit code into 120."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
