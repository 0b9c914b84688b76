"""The bounds of one rendering: what a template, or a conversation made to hurt one, may cost."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast

from jinja2.exceptions import SecurityError

__all__ = [
    "MAX_COPIED",
    "MAX_ITEMS",
    "MAX_NUMBER",
    "MAX_SECONDS",
    "MAX_STEPS",
    "MAX_TEXT",
    "Budget",
    "BudgetExceeded",
    "bounded_concat",
    "bounded_format",
    "bounded_number",
    "bounded_text",
    "has_parts",
]

MAX_STEPS: Final = 2_000_000
"""Loop rounds and calls of one rendering. A long conversation takes some thousands."""
MAX_TEXT: Final = 64 << 20
"""Characters of one text: twice what the longest request body holds."""
MAX_COPIED: Final = 4 << 30
"""Characters of all texts that a rendering puts together."""
MAX_ITEMS: Final = 1_000_000
"""Items of one list, and parts of a value that is written or compared. A request body holds fewer."""
MAX_SECONDS: Final = 1.0
"""Of processor time. The longest conversations take a third of it."""
MAX_NUMBER: Final = 10_000
"""The largest width, count or fill that a filter or a text's method takes."""
MAX_BITS: Final = 4096
"""Of an integer."""

_WIDE: Final = re.compile(r"%(\([^)]*\))?[-+ #0]*[\d.]*(\d{5}|\*)|\{[^{}]*(\d{5}|\{)")
"""A format whose width or precision has five digits, or comes from the arguments."""

_PADDING: Final = frozenset({"center", "expandtabs", "ljust", "rjust", "zfill"})
"""Methods of a text that make it as long as they are told."""


_LOOK: Final = 64
"""Steps between two looks at the clock."""
_LONG: Final = 1 << 20
"""Characters that take long enough to make for a look."""


class BudgetExceeded(SecurityError):
    """A rendering asks for more than it is given."""


class Budget:
    """What one rendering has left. Belongs to that rendering."""

    def __init__(self) -> None:
        self._steps = 0
        self._copied = 0
        # Of this thread alone: a busy machine does not make a template slow.
        self._end = time.thread_time() + MAX_SECONDS

    def step(self) -> None:
        """A loop goes round, or something is called."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise BudgetExceeded(f"the chat template takes more than {MAX_STEPS} steps")
        if not self._steps % _LOOK:
            self._look()

    def work(self) -> None:
        """A step that may take long, whatever it is given."""
        self.step()
        self._look()

    def _look(self) -> None:
        if time.thread_time() > self._end:
            raise BudgetExceeded(f"the chat template takes more than {MAX_SECONDS:g} s")

    def items(self, count: int) -> None:
        """A list of so many items is about to be made."""
        if count > MAX_ITEMS:
            raise BudgetExceeded(f"the chat template makes a list of more than {MAX_ITEMS} items")

    def weigh(self, value: object) -> None:
        """A value is about to be walked to its last part: shared parts count as often as they are met."""
        if not has_parts(value):
            return
        parts = 0
        pending: list[object] = [value]
        while pending:
            each = pending.pop()
            if isinstance(each, dict):
                held = cast("Mapping[object, object]", each)
                parts += 2 * len(held)
                pending.extend(filter(has_parts, held.values()))
            else:
                listed = cast("Sequence[object]", each)
                parts += len(listed)
                pending.extend(filter(has_parts, listed))
            # Parts that are empty lists have no parts of their own, and count too.
            if parts + len(pending) > MAX_ITEMS:
                raise BudgetExceeded(f"the chat template walks a value of more than {MAX_ITEMS} parts")
        if parts > _LOOK:
            self._look()

    def text(self, length: int) -> None:
        """A text of this length is about to be made."""
        bounded_text(length)
        self._copied += length
        if length > _LONG:
            self._look()
        if self._copied > MAX_COPIED:
            raise BudgetExceeded(f"the chat template copies more than {MAX_COPIED} characters")

    def operation(self, operator: str, left: object, right: object) -> None:
        """Operands are about to be joined, repeated, raised or formatted."""
        length = _length(left) + _length(right)
        match operator, left, right:
            case "%", str(), _:
                bounded_format(left)
                self.weigh(right)
            case "+", list() | tuple(), _:
                self.items(length)
            case "+", _, _:
                self.text(length)
            case "*", int(), int():
                _bounded_bits(left.bit_length() + right.bit_length())
            case ("*", list() | tuple(), int(times)) | ("*", int(times), list() | tuple()):
                self.items(length * max(times, 0))
            case "*", int(), _:
                self.text(length * max(left, 0))
            case "*", _, int():
                self.text(length * max(right, 0))
            case "**", int(), int():
                _bounded_bits(left.bit_length() * max(right, 0))
            case _:
                pass

    def method(self, text: str, name: str, arguments: tuple[object, ...]) -> None:
        """A method of a text is about to be called."""
        for argument in arguments:
            self.weigh(argument)
        match name, arguments:
            case "split" | "rsplit", (str(separator), *_) if separator:
                self.items(text.count(separator))
            case "split" | "rsplit" | "splitlines", _:
                self.items(sum(map(text.count, " \t\n\r")))
            case "replace", (str(old), str(new), *_):
                self.text(len(text) + text.count(old) * len(new))
            case "join", (parts,) if isinstance(parts, list | tuple):
                joined = cast("Sequence[object]", parts)
                self.text(sum(map(_length, joined)) + len(text) * len(joined))
            case _ if name in _PADDING:
                for argument in arguments:
                    bounded_number(argument)
                    self.text(len(text) + text.count("\t") * (argument if isinstance(argument, int) else 0))
            case _:
                pass


def has_parts(value: object) -> bool:
    """Whether a value has parts that whatever walks it would meet."""
    return isinstance(value, list | tuple | dict)


def _length(value: object) -> int:
    """Of a text or a list, in characters or items; 0 for anything else."""
    return len(cast("Sequence[object]", value)) if isinstance(value, str | list | tuple) else 0


def bounded_concat(parts: Iterable[str]) -> str:
    """The parts joined, as long as they stay within `MAX_TEXT`."""
    kept: list[str] = []
    length = 0
    for part in parts:
        length += len(part)
        bounded_text(length)
        kept.append(part)
    return "".join(kept)


def bounded_text(length: int) -> None:
    """Refuse a text that is too long."""
    if length > MAX_TEXT:
        raise BudgetExceeded(f"the chat template makes a text of more than {MAX_TEXT} characters")


def bounded_number(value: object) -> None:
    """Refuse a width, count or fill that is too large; anything but an integer passes."""
    if isinstance(value, int) and value > MAX_NUMBER:
        raise BudgetExceeded(f"the chat template asks for {value} of something, and at most {MAX_NUMBER} is given")


def bounded_format(pattern: str) -> None:
    """Refuse a format that pads without end."""
    if _WIDE.search(pattern):
        raise BudgetExceeded("the chat template uses a format with a width of five digits or a variable one")


def _bounded_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise BudgetExceeded(f"the chat template makes an integer of more than {MAX_BITS} bits")
