"""One reply: the window of rows that it offers to a step, and the one walk that accepts what was drawn.

A sequence knows tokens alone: not its slot, not its neighbours, not the Runner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from functools import partial

import msgspec

from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.engine.drafts import Chances, Drafter, Source
from tensorfold.engine.gates import FREE, GateStates, Verdict
from tensorfold.engine.job import Job
from tensorfold.engine.keys import token_sha
from tensorfold.engine.loops import LoopDetector
from tensorfold.engine.reply import ReplyText
from tensorfold.errors import LOOP_DETECTED, GenerationFailed
from tensorfold.ir import Event, Stopped, StopReason, TextDelta, ThinkingDelta, TokenInfo

__all__ = ["Sequence", "Window"]


class Window(msgspec.Struct, frozen=True, eq=False):
    """What a sequence wants computed: rows in order, each with the draw that is made if all guesses before it hold."""

    tokens: tuple[int, ...]
    """To be run: the last token kept, then the guesses. Empty when the draw is from the prompt's last row."""
    start: int
    """Position of the first of them."""
    draws: tuple[Draw, ...]
    """One a row, in order; `row` is what the window was told that its first one is."""
    states: tuple[GateStates, ...]
    """The gates' states before each draw."""
    guesses: tuple[int, ...]
    """What each draw but the last is guessed to give."""
    drafted: tuple[bool, ...]
    """Whether each guess came from a drafter or a draft head, and not from a gate or an earlier run."""
    source: Source
    """Which of them."""


class Sequence:
    """One choice of a job, from its first token to its last."""

    def __init__(self, job: Job, choice: int, chances: Chances | None = None) -> None:
        """`chances` are the engine's."""
        self.job = job
        self.choice = choice
        self.stopped: Stopped | None = None
        """Set with the last token."""
        self.drafted = 0
        """Guesses of a drafter that were verified."""
        self.drafts = 0
        """Windows that held some."""
        self.accepted = 0
        """Of those, the ones kept."""
        self._key = job.choice_key(choice)
        self._gated = bool(job.gates.gates)
        """PERF: most replies have no gate, and each token would ask none of them five times."""
        self._penalized = job.rule.penalizes
        self._chances = Chances() if chances is None else chances
        self._odds = self._chances.begin()
        self._expected: tuple[int, ...] = ()
        """Kept before a restart."""
        self._begin()

    def _begin(self) -> None:
        """The state before the first token, with every part fresh."""
        self.tokens: list[int] = []
        """The reply so far; all but the last one are in the Runner's states."""
        self._states: GateStates = self.job.gates.start
        self._text: ReplyText = self.job.reply_text(self.choice)
        self._loops = LoopDetector() if self.job.detects_loops else None
        self._failure: GenerationFailed | None = None
        self._counts: Counter[int] = Counter(self.job.ids) if self._penalized else Counter()
        drafting = self.job.drafting
        self._drafter: Drafter | None = None if drafting is None else drafting.begin(self.job.ids)
        self._suggested: tuple[int, ...] = ()
        """What the draft head guesses to follow."""

    def restart(self) -> None:
        """Its states are lost: it will be computed again from its prompt.

        Tokens that were kept before are expected again, compared, and not sent twice.
        """
        if len(self.tokens) > len(self._expected):
            self._expected = tuple(self.tokens)
        self._begin()

    # ---- what it holds -------------------------------------------------------------------------------------

    @property
    def replaying(self) -> bool:
        """Whether the next token was already sent."""
        return len(self.tokens) < len(self._expected)

    @property
    def position(self) -> int:
        """Where the next token stands, counted from the prompt's first."""
        return len(self.job.ids) + len(self.tokens)

    @property
    def left(self) -> int:
        """The most tokens that may still come."""
        return self.job.limit.tokens - len(self.tokens)

    @property
    def sent(self) -> tuple[int, ...]:
        """Every token that counts, those included that a replay has not reached yet."""
        return self._expected if self.replaying else tuple(self.tokens)

    @property
    def count(self) -> int:
        """How many those are."""
        return max(len(self.tokens), len(self._expected))

    @property
    def reasoning_tokens(self) -> int:
        """Of the tokens so far."""
        return self._text.reasoning_tokens

    @property
    def sha(self) -> str:
        """Hash of the reply's ids."""
        return token_sha(self.sent)

    # ---- offering ------------------------------------------------------------------------------------------

    def first_window(self) -> Window:
        """The draw from the prompt's last row.

        Raises:
            GenerationFailed: the gates allow no token here.
        """
        return self._window((), 0, 1)

    @property
    def serial(self) -> bool:
        """Whether it offers one row at a time: the reference."""
        return not (self.job.request.draft or self.replaying)

    @property
    def _unguessed(self) -> bool:
        """Whether there is nobody who could guess its next tokens."""
        return self._drafter is None and not self._suggested and not self._expected

    def outlook(self, most: int) -> tuple[float, ...]:
        """For each guess that it could offer, at most `most`, the chance that it is kept; never rising."""
        if self._unguessed or self.serial:
            return ()
        source, proposals = self._proposals(min(most, self.left - 1))
        if not proposals:
            return ()
        chance = 1.0 if self.replaying else self._odds[source].rate
        return tuple(chance ** (place + 1) for place in range(len(proposals)))

    def next_window(self, guesses: int, rows: int, row: int = 0) -> Window:
        """The last token and up to `guesses` guesses; with tokens that a gate forces, up to `rows` rows, the first one being
        the step's `row`.

        Raises:
            GenerationFailed: the gates allow no token here.
        """
        if rows > 1:
            rows = 1 if self.serial else min(rows, self.left)
        return self._window((self.tokens[-1],), guesses, rows, row)

    def _window(self, pending: tuple[int, ...], most: int, rows: int, row: int = 0) -> Window:
        verdict = self.job.gates.verdict(self._states) if self._gated else FREE
        if verdict.dead:
            raise GenerationFailed(
                f"no token may follow token {len(self.tokens)} of the reply: the request's constraints allow none"
            )
        first = self._draw(row, 0, verdict, self._counts)
        if rows == 1 or (self._unguessed and verdict.forced is None):
            start = len(self.job.ids) + len(self.tokens) - len(pending)
            return Window(pending, start, (first,), (self._states,), (), (), "drafter")
        return self._guessing(pending, most, rows, verdict, first)

    def _guessing(self, pending: tuple[int, ...], most: int, rows: int, verdict: Verdict, first: Draw) -> Window:
        """A window that goes on behind its first draw for as long as there are guesses."""
        counts: Mapping[int, int] = self._counts
        draws = [first]
        states = [self._states]
        source, proposals = self._proposals(min(most, rows - 1))
        guesses = _Guesses(proposals, self.replaying)
        while len(draws) < rows:
            guess = guesses.next(verdict, self.job.vocabulary, partial(self.job.gates.kept, states[-1]))
            if guess is None or guess in self.job.ends:
                break
            after = self.job.gates.advance(states[-1], guess)
            verdict = self.job.gates.verdict(after)
            if verdict.dead:
                break
            if self._penalized:
                counts = Counter(counts)
                counts[guess] += 1
            guesses.keep(guess)
            states.append(after)
            draws.append(self._draw(first.row + len(draws), len(draws), verdict, counts))
        return Window(
            tokens=(*pending, *guesses.kept),
            start=self.position - len(pending),
            draws=tuple(draws),
            states=tuple(states),
            guesses=tuple(guesses.kept),
            drafted=tuple(guesses.drafted),
            source=source,
        )

    def _proposals(self, most: int) -> tuple[Source, tuple[int, ...]]:
        """Guesses for the next tokens: those that an earlier run kept, else the drafter's, else the draft head's."""
        if most <= 0:
            return "drafter", ()
        if self.replaying:
            return "drafter", self._expected[len(self.tokens) : len(self.tokens) + most]
        proposed = () if self._drafter is None else tuple(self._drafter.propose(most))
        return ("drafter", proposed) if proposed else ("head", self._suggested[:most])

    def suggest(self, tokens: SequenceOf[int]) -> None:
        """The draft head guesses that these follow the last token kept."""
        self._suggested = tuple(tokens)

    def promising(self, ahead: int, worth: float) -> bool:
        """Whether `ahead` guesses of the draft head are all right often enough."""
        return self._odds["head"].rate ** ahead >= worth

    def draft_draw(self, row: int, ahead: int) -> Draw:
        """The draw of a guess, `ahead` positions behind the next token, from a row of the draft head's logits.

        It has the noise of the token that it guesses, so that it is right as often as it can be.
        """
        return Draw(row=row, key=self._key, position=self.position + ahead, rule=self.job.rule, counts=self._counts)

    def _draw(self, row: int, ahead: int, verdict: Verdict, counts: Mapping[int, int]) -> Draw:
        """The draw of the token `ahead` of the next one."""
        job = self.job
        position = len(job.ids) + len(self.tokens) + ahead
        return Draw(row, self._key, position, job.rule, verdict.allowed, verdict.forced, counts, job.request.logprobs)

    # ---- accepting -----------------------------------------------------------------------------------------

    def accept(self, window: Window, drawn: Iterable[Drawn]) -> Iterator[Event]:
        """Keep tokens while each next guess is what was drawn; the last one kept may end the reply.

        Gives what there is to send, and has to be read to its end; `position` then says how far it went.

        Raises:
            GenerationFailed: nothing could be drawn, or a replay does not give what was sent.
        """
        guesses = window.guesses
        offered = sum(window.drafted)
        self.drafted += offered
        self.drafts += offered > 0
        self._suggested = ()
        for row, each in enumerate(drawn):
            if self._gated:
                each = self._kept(each, window.draws[row], window.states[row])
            guessed = row < len(guesses)
            right = guessed and guesses[row] == each.token
            yield from self._append(each, window.states[row], window.states[row + 1] if right else None)
            if self._failure is not None:
                raise self._failure
            if guessed and window.drafted[row]:
                self.accepted += right
                self._learn(window.source, right=right)
            if self.stopped is not None or not right:
                return

    def _learn(self, source: Source, *, right: bool) -> None:
        self._odds[source].learn(int(right), int(not right))
        self._chances.learn(source, int(right), int(not right))

    def _kept(self, drawn: Drawn, draw: Draw, states: GateStates) -> Drawn:
        """What was drawn, or what a gate puts in its place; the log-probability was that of the other one."""
        if drawn.problem is not None or draw.forced is not None:
            return drawn
        token = self.job.gates.kept(states, drawn.token)
        return drawn if token == drawn.token else msgspec.structs.replace(drawn, token=token, logprob=None)

    def _append(self, drawn: Drawn, before: GateStates, after: GateStates | None) -> list[Event]:
        """One token more, with all that looks at tokens; `after` is the gates' next state if it is known."""
        number, token, job = len(self.tokens), drawn.token, self.job
        if drawn.problem is not None:
            raise GenerationFailed(f"token {number + 1} of the reply cannot be drawn: {drawn.problem}")
        sent = number < len(self._expected)
        if sent and token != self._expected[number]:
            raise GenerationFailed(
                f"a resumed reply differs from what was sent: token {number + 1} was {self._expected[number]}"
                f" and is now {token}"
            )
        self.tokens.append(token)
        if self._gated:
            self._states = job.gates.advance(before, token) if after is None else after
        if self._penalized:
            self._counts[token] += 1
        if self._drafter is not None:
            self._drafter.extend(token)
        # Its bytes are told when log-probabilities were asked for.
        events = self._read(token, None if job.request.logprobs is None else job.spelled_info(token, drawn))
        return [] if sent else events

    def _read(self, token: int, info: TokenInfo | None) -> list[Event]:
        """The token as text, and whether it ends the reply: as end token, stop token, stop string or by the limit."""
        job = self.job
        if token in job.ends:
            self._text.count()
            return self.stop("end", ended_by=self._spelled(token))
        stops = token in job.stop_ids
        if stops and not job.request.limits.include_stop_str:
            self._text.count()
            return self.stop("stop", ended_by=self._spelled(token))
        events, matched = self._text.feed(token, info)
        if stops or matched is not None:
            return [*events, *self.stop("stop", matched, ended_by=matched or self._spelled(token))]
        if self._loops is not None and self._loops.feed(token, self._text.latest) is not None:
            return [*events, *self._loop()]
        if len(self.tokens) >= job.limit.tokens:
            return [*events, *self.stop(job.limit.reason)]
        if job.request.limits.stop_after_output and self._text.whole and any(map(_shows, events)):
            return [*events, *self.stop("length")]
        return events

    def _loop(self) -> list[Event]:
        """The reply only repeats itself: it ends, or the request fails once what was written is sent."""
        if not self.job.request.limits.loop_detect_error:
            return self.stop("repetition")
        self._failure = GenerationFailed(
            f"the reply repeats itself without end, after {len(self.tokens)} tokens. A retry helps only when sampling is"
            " random and has another seed: greedy replies, a fixed seed, and a seed that comes from the prompt loop again",
            code=LOOP_DETECTED,
        )
        return []

    def _spelled(self, token: int) -> str:
        return self.job.tokenizer.token_bytes(token).decode(errors="replace")

    def stop(self, reason: StopReason, matched: str | None = None, *, ended_by: str | None = None) -> list[Event]:
        """End the reply: the text that was held back, unless a stop string `matched`, and `Stopped`."""
        # Of a reply that is replayed, everything up to here was sent, and the rest is not there yet.
        events = [] if self.replaying else self._text.finish(matched=matched is not None)
        if self._text.calls and not self._text.broken and (reason == "end" or self._endless(reason)):
            reason = "tool_calls"
        self.stopped = Stopped(self.choice, reason, matched, ended_by)
        return [*events, self.stopped]

    def _endless(self, reason: StopReason) -> bool:
        """Whether the reply could end in no other way than by its limit."""
        return reason == "length" and self.job.request.limits.ignore_eos


def _shows(event: Event) -> bool:
    return isinstance(event, TextDelta | ThinkingDelta) and bool(event.text)


class _Guesses:
    """The guesses of one window: what a gate forces, else what was proposed, as long as both agree."""

    def __init__(self, proposals: tuple[int, ...], replayed: bool) -> None:
        self.kept: list[int] = []
        self.drafted: list[bool] = []
        self._proposals = proposals
        self._replayed = replayed
        self._forced = False

    def next(self, verdict: Verdict, vocabulary: int, kept: Callable[[int], int]) -> int | None:
        """The next guess, or None when there is none that the gates permit; `kept` is what they keep of a token."""
        proposed = next(iter(self._proposals), None)
        self._forced = verdict.forced is not None
        guess = verdict.forced if self._forced else proposed
        if guess is None or not 0 <= guess < vocabulary:
            return None
        guess = guess if self._forced else kept(guess)
        # Proposals behind a forced token that they did not foresee continue another text.
        self._proposals = self._proposals[1:] if guess == proposed else ()
        return guess if verdict.permits(guess) else None

    def keep(self, guess: int) -> None:
        """The guess becomes part of the window."""
        self.kept.append(guess)
        self.drafted.append(not (self._forced or self._replayed))
