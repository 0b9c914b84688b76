"""The gate behind a bound reply: only tokens that its grammar allows, and the end only when it is complete."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tensorfold.engine.thinking import Place, PlaceTracker
from tensorfold.errors import GenerationFailed

__all__ = ["CompiledGrammar", "GrammarGate", "Matcher"]


class Matcher(Protocol):
    """Follows one text through a grammar, and goes back."""

    def accept(self, token: int) -> bool:
        """One token more; False: the grammar does not allow it, and nothing has changed."""
        ...

    def rollback(self, tokens: int) -> None:
        """So many tokens less."""
        ...

    def allowed(self) -> NDArray[np.bool_]:
        """`[V]`: which tokens may come next; end tokens among them when the text is complete."""
        ...


class CompiledGrammar(Protocol):
    """A grammar that is ready to be followed."""

    def matcher(self) -> Matcher:
        """A fresh one, before the first token."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Path:
    """The tokens of the bound text so far, the latest first."""

    before: _Path | None
    token: int
    depth: int


class _Cursor:
    """One matcher, moved between the paths of one reply: the only thing here that changes and goes back."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._at: _Path | None = None

    def move(self, path: _Path | None) -> None:
        """Stand behind this path.

        Raises:
            GenerationFailed: the grammar does not allow one of its tokens.
        """
        back, ahead = self._at, list[_Path]()
        while path is not back:
            if path is None or (back is not None and back.depth >= path.depth):
                assert back is not None
                back = back.before
            else:
                ahead.append(path)
                path = path.before
        steps = _depth(self._at) - _depth(back)
        if steps:
            self._matcher.rollback(steps)
        self._at = back
        for each in reversed(ahead):
            if not self._matcher.accept(each.token):
                raise GenerationFailed(f"the grammar does not allow token {each.depth} of the bound reply")
            self._at = each

    def fits(self, path: _Path | None, token: int) -> bool:
        """Whether a token may follow a path; the cursor then stands behind it."""
        self.move(path)
        if not self._matcher.accept(token):
            return False
        self._at = _Path(path, token, _depth(path) + 1)
        return True

    def allowed(self, path: _Path | None) -> NDArray[np.bool_]:
        """Which tokens may follow a path."""
        self.move(path)
        return self._matcher.allowed()

    @property
    def at(self) -> _Path | None:
        """Where it stands."""
        return self._at


def _depth(path: _Path | None) -> int:
    return 0 if path is None else path.depth


@dataclass(frozen=True, slots=True, eq=False)
class _Bound:
    """How far a reply is with its grammar."""

    cursor: _Cursor
    place: Place
    path: _Path | None = None
    begun: int | None = 0
    """Where the reply may still open its reasoning: tokens of the opening mark that are written."""
    alive: bool = True
    """Whether what is written may belong to the grammar; else only to the opening mark."""
    ended: bool = False
    """An end token was kept."""

    @property
    def free(self) -> bool:
        """Whether the grammar holds nothing here."""
        return self.place.part == "thinking"


class GrammarGate:
    """Holds nothing within the reasoning, and from the token behind its end mark on everything."""

    def __init__(
        self,
        tracker: PlaceTracker,
        start: Place,
        compiled: CompiledGrammar,
        *,
        opening: Sequence[int],
        closing: str,
        data: Callable[[int], bytes],
        encode: Callable[[str], Sequence[int]],
        ends: Collection[int],
        vocabulary: int,
    ) -> None:
        """`opening`: tokens of the mark with which the reply may open its reasoning. `closing`: its end mark."""
        self._tracker = tracker
        self._begin = start
        self._compiled = compiled
        self._opening = tuple(opening)
        self._closing = closing.encode()
        self._data = data
        self._encode = encode
        self._ends = frozenset(ends)
        self._only_ends = np.zeros(vocabulary, dtype=np.bool_)
        self._only_ends[sorted(end for end in ends if end < vocabulary)] = True

    @property
    def start(self) -> Hashable:
        """Before the first token: each reply has a matcher of its own."""
        opens = 0 if self._begin.part == "begin" and self._opening else None
        return _Bound(_Cursor(self._compiled.matcher()), self._begin, begun=opens)

    def forced(self, state: Hashable) -> None:
        """Forces nothing."""
        return

    def allowed(self, state: Hashable) -> NDArray[np.bool_] | None:
        """What the grammar allows behind what is written, and the next token of the opening mark where it may come."""
        bound = _bound(state)
        if bound.free:
            return None
        if bound.ended:
            return self._only_ends
        mask = bound.cursor.allowed(bound.path) if bound.alive else np.zeros_like(self._only_ends)
        if bound.begun is not None:
            mask = mask.copy()
            mask[self._opening[bound.begun]] = True
        return mask

    def replaced(self, state: Hashable, token: int) -> int:
        """A token that closes the reasoning and goes on with text is cut to the mark: the grammar begins behind that."""
        bound = _bound(state)
        if not bound.free or token in self._ends:
            return token
        place = self._tracker.advance(bound.place, self._data(token))
        if place.part != "answer" or not place.answered.strip():
            return token
        written = len(self._data(token)) - len(place.answered)
        return self._encode(self._closing[len(self._closing) - written :].decode(errors="ignore"))[0]

    def advance(self, state: Hashable, token: int) -> Hashable:
        """One token more."""
        bound = _bound(state)
        cursor = bound.cursor
        place = self._tracker.advance(bound.place, self._data(token))
        if bound.free or bound.ended:
            # The end mark itself is no part of the bound text.
            return _Bound(cursor, place, None, None, ended=bound.ended)
        begun = bound.begun
        begun = begun + 1 if begun is not None and token == self._opening[begun] else None
        if begun == len(self._opening):
            return _Bound(cursor, Place("thinking"), None, None)
        if bound.alive and cursor.fits(bound.path, token):
            kept = place if begun is not None else Place("answer")
            return _Bound(cursor, kept, cursor.at, begun, ended=token in self._ends)
        if begun is None:
            raise GenerationFailed("the grammar does not allow a token of the bound reply")
        return _Bound(cursor, place, None, begun, alive=False)


def _bound(state: Hashable) -> _Bound:
    if not isinstance(state, _Bound):
        raise TypeError(f"the state of a grammar is {state!r}")
    return state
