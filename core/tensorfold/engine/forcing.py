"""The gate behind `tool_choice`: the answer is a call of an offered function, whose arguments the model writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tensorfold.engine.thinking import Place, PlaceTracker

__all__ = ["CallText", "ForcedCall"]


@dataclass(frozen=True, slots=True)
class CallText:
    """What the template writes around a call's name."""

    before: bytes
    """The opener, and all that stands ahead of the name."""
    names: Mapping[bytes, tuple[bytes, ...]]
    """Each offered name, in order, with the texts that may stand behind it: the one to be forced comes first."""


@dataclass(frozen=True, slots=True)
class _Written:
    """How far a reply is with its call."""

    place: Place
    phase: Literal["before", "opening", "name", "done"] = "before"
    text: bytes = b""
    """Of the opening, or of the name and what stands behind it, as far as it is written."""


class ForcedCall:
    """Behind the reasoning, the first token of the answer that is not white space gives way to a call's opening.

    Then each token has to write one of the offered names, and behind it what the template writes there; one that does
    not gives way to the next token of the first name that fits. Until there is a call, no end token may come.
    """

    def __init__(
        self,
        tracker: PlaceTracker,
        start: Place,
        call: CallText,
        *,
        data: Callable[[int], bytes],
        encode: Callable[[str], Sequence[int]],
        ends: Collection[int],
        vocabulary: int,
    ) -> None:
        """`data`: what a token adds to the text. `encode`: tokens of a text, marks included. `ends`: end tokens."""
        self._tracker = tracker
        self._begin = start
        self._call = call
        self._data = data
        self._encode = encode
        self._ends = frozenset(ends)
        self._endless = np.ones(vocabulary, dtype=np.bool_)
        self._endless[sorted(end for end in ends if end < vocabulary)] = False

    @property
    def start(self) -> Hashable:
        """Before the first token."""
        return _Written(self._begin)

    def forced(self, state: Hashable) -> int | None:
        """The opening's next token."""
        written = _written(state)
        return self._next(self._call.before, len(written.text)) if written.phase == "opening" else None

    def allowed(self, state: Hashable) -> NDArray[np.bool_] | None:
        """All but end tokens while the reply thinks, unless it has called there."""
        written = _written(state)
        thinking = written.phase == "before" and written.place.part == "thinking"
        return self._endless if thinking and not written.place.calls else None

    def replaced(self, state: Hashable, token: int) -> int:
        """The token, or the one that has to stand in its place."""
        written = _written(state)
        match written.phase:
            case "before":
                answer = self._answer(written.place, token)
                if answer is None or (answer and self._call.before.startswith(answer)):
                    return token
                begun = written.place.held.lstrip() if written.place.part == "begin" else b""
                return self._next(self._call.before, len(begun) if self._call.before.startswith(begun) else 0)
            case "name" if token in self._ends or not self._whole(written.text + self._data(token)):
                return self._next(self._whole(written.text)[0], len(written.text))
            case _:
                return token

    def advance(self, state: Hashable, token: int) -> Hashable:
        """One token more."""
        written = _written(state)
        data = self._data(token)
        place = self._tracker.advance(written.place, data)
        match written.phase:
            case "before":
                answer = self._answer(written.place, token)
                return _Written(place) if answer is None else self._opened(place, self._opening(answer, data))
            case "opening":
                return self._opened(place, written.text + data)
            case "name":
                text = written.text + data
                whole = any(text.startswith(each) for each in self._whole(text))
                return _Written(place, "done") if whole else _Written(place, "name", text)
            case "done":
                return _Written(place, "done")

    def _answer(self, place: Place, token: int) -> bytes | None:
        """What the answer is with this token, white space before it left out; None: it has not begun."""
        if token in self._ends:
            return None if place.part == "thinking" else b""
        behind = self._tracker.advance(place, self._data(token))
        return (behind.answered.lstrip() or None) if behind.part == "answer" else None

    def _opening(self, answer: bytes, data: bytes) -> bytes:
        """How much of the opening is written: all of the answer, or the latest token where it began anew."""
        return answer if self._call.before.startswith(answer) else data.lstrip()

    def _opened(self, place: Place, text: bytes) -> _Written:
        # A guess may be anything; what is kept is always the opening.
        return _Written(place, "opening", text) if len(text) < len(self._call.before) else _Written(place, "name")

    # ---- the name ------------------------------------------------------------------------------------------

    def _whole(self, text: bytes) -> list[bytes]:
        """Every name with what stands behind it, as far as it agrees with this text."""
        every = [name + behind for name, texts in self._call.names.items() for behind in texts]
        return [each for each in every if each.startswith(text) or text.startswith(each)]

    def _next(self, text: bytes, written: int) -> int:
        """The token that goes on with a text of which so many bytes are written."""
        done = 0
        for token in self._encode(text.decode()):
            if done == written:
                return token
            done += len(self._data(token))
        # The model has cut the text elsewhere, maybe within a character; tokens are made of whole ones.
        known = len(text[:written].decode(errors="ignore").encode())
        for token in self._encode(text[known:].decode()):
            if known >= written:
                return token
            known += len(self._data(token))
        raise ValueError(f"the tokenizer cannot spell what follows {text[:written]!r}")


def _written(state: Hashable) -> _Written:
    if not isinstance(state, _Written):
        raise TypeError(f"the state of a forced call is {state!r}")
    return state
