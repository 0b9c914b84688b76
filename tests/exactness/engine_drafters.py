"""Drafters that are right, wrong here and there, and wrong for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tensorfold.engine.drafts import Drafter

from .engine_models import VOCABULARY


@dataclass
class Recalled:
    """Drafts what each prompt's reply was before, wrong at every n-th place (0: never)."""

    replies: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    wrong_every: int = 0

    def begin(self, prompt: Sequence[int]) -> Drafter:
        reply = list(self.replies.get(tuple(prompt), ()))
        if self.wrong_every:
            for place in range(self.wrong_every - 1, len(reply), self.wrong_every):
                reply[place] = (reply[place] + 1) % VOCABULARY
        return _Recalled(tuple(reply))


class _Recalled:
    def __init__(self, reply: tuple[int, ...]) -> None:
        self._reply = reply
        self._kept = 0

    def extend(self, token: int) -> None:
        self._kept += 1

    def propose(self, most: int) -> Sequence[int]:
        return self._reply[self._kept : self._kept + most]


class Nonsense:
    """Drafts the same token for ever."""

    def begin(self, prompt: Sequence[int]) -> Drafter:
        return self

    def extend(self, token: int) -> None:
        return

    def propose(self, most: int) -> Sequence[int]:
        return (5,) * most
