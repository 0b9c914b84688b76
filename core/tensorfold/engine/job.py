"""A request as the engine runs it: all that decides the bits of its replies, and nothing that changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from tensorfold.contracts.chat import ReplyParser, Tokenizer
from tensorfold.contracts.sampling import Drawn, SamplingRule
from tensorfold.engine.detokenize import Detokenizer
from tensorfold.engine.drafts import Drafting
from tensorfold.engine.gates import GateSet
from tensorfold.engine.keys import call_id, choice_key
from tensorfold.engine.limits import ReplyLimit
from tensorfold.engine.plan import Chunk
from tensorfold.engine.reply import ReplyText
from tensorfold.engine.stops import StopScanner
from tensorfold.ir import Request, TokenInfo

__all__ = ["Job"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Job:
    """One admitted request."""

    request: Request
    ids: tuple[int, ...]
    """The prompt."""
    chunks: tuple[Chunk, ...]
    """How the prompt is computed, whenever it is."""
    markers: tuple[int, ...]
    """Where the prompt's messages open."""
    text: str | None
    """The prompt as it was written or rendered; None: it was given as tokens."""
    vocabulary: int
    """Ids from 0 to vocabulary - 1 exist."""
    rule: SamplingRule
    key: int
    """Choice 0's sampling key."""
    limit: ReplyLimit
    """Of each choice."""
    ends: frozenset[int]
    """The model's end tokens, unless the request turns them off."""
    stop_ids: frozenset[int]
    """The caller's stop tokens."""
    spelled: frozenset[int]
    """Control tokens that appear in the text as they are spelled."""
    gates: GateSet
    tokenizer: Tokenizer
    parser: Callable[[], ReplyParser]
    """Makes a fresh parser for a choice."""
    drafting: Drafting | None
    """None: one token a round."""
    scored: tuple[tuple[int, ...], ...] = ()
    """Continuations of the prompt whose log-probabilities are asked for, instead of a reply."""

    @property
    def choices(self) -> int:
        """How many replies."""
        return self.request.choices

    @property
    def whole(self) -> bool:
        """Whether every row of the prompt is read, so that none of it can come from a kept prefix."""
        return self.request.echo and self.request.logprobs is not None

    def echo_text(self) -> str:
        """The prompt's text; of tokens, all their spellings, control tokens included."""
        if self.text is not None:
            return self.text
        return b"".join(map(self.tokenizer.token_bytes, self.ids)).decode(errors="replace")

    def spelled_info(self, token: int, drawn: Drawn | None) -> TokenInfo:
        """A token with its bytes and its log-probability; `drawn` None: nothing stood before it."""
        spelling = self.tokenizer.token_bytes
        if drawn is None:
            return TokenInfo(token, spelling(token), None)
        alternatives = tuple(msgspec.structs.replace(each, data=spelling(each.id)) for each in drawn.alternatives)
        return TokenInfo(token, spelling(token), drawn.logprob, alternatives)

    @property
    def detects_loops(self) -> bool:
        """Whether a reply that only repeats itself is stopped: unless the request wants its whole length."""
        limits = self.request.limits
        return not limits.ignore_eos if limits.loop_detect is None else limits.loop_detect

    def choice_key(self, choice: int) -> int:
        """The sampling key of one choice."""
        return choice_key(self.key, choice)

    def reply_text(self, choice: int) -> ReplyText:
        """A fresh text side for a choice."""
        limits = self.request.limits
        key = self.choice_key(choice)
        return ReplyText(
            choice,
            Detokenizer(self.tokenizer, self.spelled),
            StopScanner(limits.stop, keep=limits.include_stop_str),
            self.parser(),
            lambda index: call_id(self.ids, key, index),
            counted=self.request.counted,
        )
