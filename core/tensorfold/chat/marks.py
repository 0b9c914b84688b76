"""Control tokens that no text can forge.

A template writes control tokens as text (`<|im_end|>`), and a caller's text may hold the same characters. So the
template's own ones are respelled as marks when it is compiled: random numbers that nobody else knows. What is rendered
tells the two apart, wherever the template put, cut or joined the caller's text.

Some templates put control tokens together while they render (`'<|' + role + '|>'`). For those spellings alone, found by
trial when the template is compiled, the caller's text is guarded instead: a mark within each such spelling.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from tensorfold.ir import JSON

__all__ = ["ControlMarks"]

_DIGITS: Final = 8
_GUARD: Final = "9" * _DIGITS


class ControlMarks:
    """The marks of one template. Digits alone, so that no filter changes them (upper case, trimming, JSON, URLs)."""

    def __init__(self, controls: Mapping[str, int], *, joined: Iterable[str] = (), secret: str | None = None) -> None:
        """`controls`: every control token's id by its spelling; `joined`: those that the template puts together."""
        self._controls = {spelling: id for spelling, id in controls.items() if spelling}
        self._spellings = {id: spelling for spelling, id in self._controls.items()}
        self._joined = frozenset(joined)
        self._secret = secret or f"{secrets.randbelow(10**30):030}"

    def accepting(self, joined: Iterable[str]) -> ControlMarks:
        """The same marks, with these control tokens put together by the template."""
        return ControlMarks(self._controls, joined=joined, secret=self._secret)

    @property
    def cut(self) -> str:
        """A mark that is no control token; it vanishes from what was rendered."""
        return self._secret + _GUARD

    def mark(self, text: str) -> str:
        """The template's own text, its control tokens respelled."""
        return self._control.sub(lambda match: f"{self._secret}{self._controls[match[0]]:0{_DIGITS}}", text)

    def spelled(self, rendered: str) -> frozenset[str]:
        """The control tokens that stand in a rendering in plain letters."""
        return frozenset(match[0] for match in self._control.finditer(rendered))

    def guard(self, value: JSON) -> JSON:
        """A caller's value in which no text spells a control token that the template puts together."""
        if not self._joined:
            return value
        match value:
            case str():
                return self._join.sub(lambda match: match[0][:1] + self.cut + match[0][1:], value)
            case list():
                return [self.guard(item) for item in value]
            case dict():
                return {str(self.guard(key)): self.guard(item) for key, item in value.items()}
            case _:
                return value

    def pieces(self, rendered: str) -> tuple[str | int, ...]:
        """A rendering as ordinary text and control tokens: no two texts side by side, and none empty."""
        pieces: list[str | int] = []
        text: list[str] = []
        for piece in self._split(rendered):
            if isinstance(piece, str):
                text.append(piece)
            else:
                pieces += [joined] if (joined := "".join(text)) else []
                pieces.append(piece)
                text.clear()
        return (*pieces, joined) if (joined := "".join(text)) else tuple(pieces)

    def reveal(self, rendered: str) -> str:
        """A rendering as people read it."""
        return self.spell(self.pieces(rendered))

    def spell(self, pieces: Iterable[str | int]) -> str:
        """Pieces as people read them."""
        return "".join(piece if isinstance(piece, str) else self._spellings[piece] for piece in pieces)

    def _split(self, rendered: str) -> Iterator[str | int]:
        # Splitting by a pattern with one group gives text, what the group matched, text, and so on.
        for at, part in enumerate(self._mark.split(rendered)):
            if at % 2:
                if part != _GUARD:
                    yield int(part)
            elif not self._joined:
                yield part
            else:
                for inner_at, inner in enumerate(self._join.split(part)):
                    yield self._controls[inner] if inner_at % 2 else inner

    @cached_property
    def _mark(self) -> re.Pattern[str]:
        return re.compile(rf"{self._secret}(\d{{{_DIGITS}}})")

    @cached_property
    def _control(self) -> re.Pattern[str]:
        return _any_of(self._controls)

    @cached_property
    def _join(self) -> re.Pattern[str]:
        return _any_of(self._joined)


def _any_of(spellings: Iterable[str]) -> re.Pattern[str]:
    """Any of these texts, the longest that fits; nothing when there are none."""
    longest_first = sorted(spellings, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
