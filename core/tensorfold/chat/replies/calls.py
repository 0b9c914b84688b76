"""What a notation of calls is, and where its reader writes what it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tensorfold.chat.replies.offered import Offered
from tensorfold.chat.replies.source import Mismatch, Reading, Source
from tensorfold.contracts.chat import CallFrame

__all__ = ["ArgumentWriter", "CallNotation", "Header", "Unoffered"]


class Unoffered(Mismatch):
    """A well-formed call of a function that was not offered."""


@dataclass(frozen=True, slots=True)
class Header:
    """The beginning of a call: enough to know that it is one."""

    name: str
    """Of an offered function."""
    kind: str = ""
    """How the arguments are written, for notations that have several ways."""
    arguments: str | None = None
    """All of them as JSON, where the header could not be read without them."""


class ArgumentWriter(Protocol):
    """Takes a call's arguments, as JSON text in pieces."""

    def write(self, text: str) -> None:
        """The next piece."""
        ...


class CallNotation(Protocol):
    """One way of writing calls, between two markers."""

    @property
    def opener(self) -> str:
        """What a call begins with."""
        ...

    @property
    def closer(self) -> str:
        """What it ends with."""
        ...

    @property
    def frame(self) -> CallFrame | None:
        """What models of this notation write around a call's name; None: it cannot be forced."""
        ...

    def header(self, source: Source, offered: Offered) -> Reading[Header]:
        """Read what stands behind the opener, through the name, up to where the first argument begins.

        Raises:
            Unoffered: a call of another function.
            Mismatch: no call.
        """
        ...

    def arguments(self, source: Source, header: Header, offered: Offered, out: ArgumentWriter) -> Reading[None]:
        """Read the rest of the call through its closer, where it has one; what is written parses as one object.

        Raises:
            Mismatch: the call breaks; what was written stays.
        """
        ...
