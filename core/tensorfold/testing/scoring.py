"""An engine that scores from a given distribution, and a tokenizer in which labels are words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tensorfold.contracts.engine import ModelInfo
from tensorfold.ir import LabelScore, Prompt, Score, Scored, SpellingScore, Timings, Usage
from tensorfold.testing.dialect_kit import reply_events
from tensorfold.testing.scripted_engine import Prompts, Script, ScriptedEngine

__all__ = ["ScoringEngine", "WordTokenizer"]


class WordTokenizer:
    """256 byte tokens, then words, then control tokens. The longest word that fits is taken first."""

    def __init__(self, words: Sequence[str], control: Sequence[str]) -> None:
        self._spellings = [bytes([value]) for value in range(256)]
        self._spellings += [word.encode() for word in (*words, *control)]
        self._words = {word.encode(): 256 + index for index, word in enumerate(words)}
        self._control = {word.encode(): 256 + len(words) + index for index, word in enumerate(control)}

    @property
    def size(self) -> int:
        """Bytes, words and control tokens."""
        return len(self._spellings)

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """Greedy, from the left."""
        known = {**self._words, **(self._control if parse_special else {})}
        longest_first = sorted(known, key=len, reverse=True)
        ids: list[int] = []
        data = text.encode()
        while data:
            word = next((each for each in longest_first if data.startswith(each)), data[:1])
            ids.append(known.get(word, word[0]))
            data = data[len(word) :]
        return ids

    def token_bytes(self, token: int) -> bytes:
        """Its spelling."""
        return self._spellings[token]

    def is_special(self, token: int) -> bool:
        """Whether it is a control token."""
        return token >= 256 + len(self._words)

    def token_id(self, spelling: str) -> int | None:
        """The word's, the control token's or the byte's."""
        found = {**self._words, **self._control}.get(spelling.encode())
        return found if found is not None or len(spelling) != 1 else ord(spelling)


class ScoringEngine(ScriptedEngine):
    """Implements `contracts.engine.CanScore` too."""

    def __init__(
        self,
        model: ModelInfo,
        prompts: Prompts | None,
        odds: Callable[[Prompt], Mapping[int, float]],
        script: Script = lambda request: reply_events(["ok"], request.choices),
    ) -> None:
        """`odds`: the probability of each token behind a prompt; those that are left out have none."""
        super().__init__(model, script, prompts)
        self._odds = odds
        self.scored: list[Prompt] = []
        """Every prompt that was scored, in order."""

    async def score(self, request: Score) -> Scored:
        """From the odds, which are the same for each token of a spelling; a text has a token for each byte."""
        self.scored.append(request.prompt)
        odds = self._odds(request.prompt)
        labels = tuple(LabelScore(tuple(_scored(each, odds) for each in label.spellings)) for label in request.labels)
        usage = Usage(1, 0, cached_tokens=3)
        return Scored(labels, usage, Timings(), top=max(odds, key=lambda token: odds[token]))


def _scored(spelling: str | tuple[int, ...], odds: Mapping[int, float]) -> SpellingScore:
    ids = tuple(spelling.encode()) if isinstance(spelling, str) else spelling
    shares = [odds.get(token, 0.0) for token in ids]
    return SpellingScore(ids, tuple(math.log(share) if share > 0 else -math.inf for share in shares))
