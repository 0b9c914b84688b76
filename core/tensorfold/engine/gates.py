"""Gates at work: how several compose, and the two that every engine has.

**Composition.** Gates stand in order. If one forces a token, the first that does decides, and no mask is read: what is
forced goes through. Else a token may come next when every gate allows it, and of those that replace a drawn token the
first one that does decides. Where no token may, the reply is at a dead
end and fails: nothing else could be drawn without breaking some gate's promise. Every gate sees every token.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.gates import Gate, ReplacingGate

__all__ = ["FREE", "AllowedTokens", "ForcedRun", "GateSet", "GateStates", "MinTokens", "Verdict"]

GateStates: TypeAlias = tuple[Hashable, ...]
"""The state of each gate of a set, in its order."""


class Verdict(msgspec.Struct, frozen=True, eq=False):
    """What the gates say of the next token."""

    forced: int | None = None
    allowed: NDArray[np.bool_] | None = None
    """`[V]`; None: every token."""

    @property
    def dead(self) -> bool:
        """Whether nothing may come next."""
        return self.forced is None and self.allowed is not None and not self.allowed.any()

    def permits(self, token: int) -> bool:
        """Whether this token may come next."""
        if self.forced is not None:
            return token == self.forced
        return self.allowed is None or bool(self.allowed[token])


FREE: Final = Verdict()
"""Any token may come."""


@dataclass(frozen=True, slots=True)
class GateSet:
    """All gates of one reply."""

    gates: tuple[Gate, ...] = ()
    _replacing: tuple[tuple[int, ReplacingGate], ...] = field(init=False, repr=False, compare=False)
    """Those that may replace a drawn token, with their places."""

    def __post_init__(self) -> None:
        # PERF: asking an object for a protocol takes microseconds, and every token is drawn.
        found = ((place, gate) for place, gate in enumerate(self.gates) if isinstance(gate, ReplacingGate))
        object.__setattr__(self, "_replacing", tuple(found))

    @property
    def start(self) -> GateStates:
        """Before the first token."""
        return tuple(gate.start for gate in self.gates)

    def advance(self, states: GateStates, token: int) -> GateStates:
        """After one more token."""
        return tuple(gate.advance(state, token) for gate, state in zip(self.gates, states, strict=True))

    def verdict(self, states: GateStates) -> Verdict:
        """What may come next."""
        if not self.gates:
            return FREE
        for gate, state in zip(self.gates, states, strict=True):
            forced = gate.forced(state)
            if forced is not None:
                return Verdict(forced=forced)
        allowed: NDArray[np.bool_] | None = None
        for gate, state in zip(self.gates, states, strict=True):
            mask = gate.allowed(state)
            if mask is not None:
                allowed = mask if allowed is None else allowed & mask
        return Verdict(allowed=allowed)

    def kept(self, states: GateStates, token: int) -> int:
        """What is kept of a token that was drawn and not forced."""
        for place, gate in self._replacing:
            if (other := gate.replaced(states[place], token)) != token:
                return other
        return token


class MinTokens:
    """Masks the tokens that would end a reply before it has `least` tokens."""

    def __init__(self, ends: AbstractSet[int], least: int, vocabulary: int) -> None:
        self._least = least
        self._mask = np.ones(vocabulary, dtype=np.bool_)
        self._mask[sorted(ends)] = False

    @property
    def start(self) -> int:
        """The state is the number of tokens, up to `least`."""
        return 0

    def advance(self, state: Hashable, token: int) -> int:
        """One token more."""
        return min(_count(state) + 1, self._least)

    def forced(self, state: Hashable) -> None:
        """Forces nothing."""
        return

    def allowed(self, state: Hashable) -> NDArray[np.bool_] | None:
        """All but the end tokens, until there are enough."""
        return self._mask if _count(state) < self._least else None


class ForcedRun:
    """The reply begins with these tokens (a tool call's opener)."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tuple(tokens)

    @property
    def start(self) -> int:
        """The state is the number of tokens, up to the run's length."""
        return 0

    def advance(self, state: Hashable, token: int) -> int:
        """One token more."""
        return min(_count(state) + 1, len(self._tokens))

    def forced(self, state: Hashable) -> int | None:
        """The run's next token."""
        count = _count(state)
        return self._tokens[count] if count < len(self._tokens) else None

    def allowed(self, state: Hashable) -> None:
        """Masks nothing."""
        return


class AllowedTokens:
    """Only these tokens may be drawn, at every position."""

    def __init__(self, tokens: AbstractSet[int], vocabulary: int) -> None:
        self._mask = np.zeros(vocabulary, dtype=np.bool_)
        self._mask[sorted(tokens)] = True

    @property
    def start(self) -> None:
        """There is but one state."""
        return

    def advance(self, state: Hashable, token: int) -> None:
        """It stays."""
        return

    def forced(self, state: Hashable) -> None:
        """Forces nothing."""
        return

    def allowed(self, state: Hashable) -> NDArray[np.bool_]:
        """The given tokens."""
        return self._mask


def _count(state: Hashable) -> int:
    if not isinstance(state, int):
        raise TypeError(f"the state of a counting gate is {state!r}, and must be an integer")
    return state
