"""The window that a sequence offers, and the one walk that accepts what was drawn."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.chat.plain import PlainParser
from tensorfold.contracts.gates import Gate
from tensorfold.contracts.sampling import Drawn, SamplingRule
from tensorfold.engine.gates import AllowedTokens, ForcedRun, GateSet
from tensorfold.engine.job import Job
from tensorfold.engine.limits import ReplyLimit
from tensorfold.engine.plan import Chunk
from tensorfold.engine.sequence import Sequence as Reply
from tensorfold.engine.sequence import Window
from tensorfold.errors import GenerationFailed
from tensorfold.ir import Event, Limits, Request, Stopped, TextDelta, TokensPrompt
from tensorfold.testing.toy_chat import Guesses
from tensorfold.testing.toy_tokenizer import ToyTokenizer

TOKENIZER = ToyTokenizer(words=("one", " two", "STOP", " x", " y", " z"), control=("<end>",))
PROMPT = (1, 2, 3)
END = TOKENIZER.ids("<end>")[0]
ONE, TWO, STOP, X, Y, Z = TOKENIZER.ids("one", " two", "STOP", " x", " y", " z")


def reply(
    *,
    drafts: Sequence[int] = (),
    limits: Limits | None = None,
    limit: int = 50,
    gates: Iterable[Gate] = (),
    ends: AbstractSet[int] = frozenset({END}),
    rule: SamplingRule | None = None,
    logprobs: int | None = None,
    draft: bool = True,
) -> Reply:
    limits = limits or Limits()
    request = Request(id="r", prompt=TokensPrompt(PROMPT), limits=limits, logprobs=logprobs, draft=draft)
    job = Job(
        request=request,
        ids=PROMPT,
        chunks=(Chunk(0, 3),),
        markers=(),
        text=None,
        vocabulary=TOKENIZER.size,
        rule=rule or SamplingRule(),
        key=5,
        limit=ReplyLimit(limit, "length"),
        ends=frozenset(ends),
        stop_ids=frozenset(limits.stop_token_ids),
        spelled=frozenset(),
        gates=GateSet(tuple(gates)),
        tokenizer=TOKENIZER,
        parser=PlainParser,
        drafting=Guesses(drafts) if drafts else None,
    )
    return Reply(job, 0)


def accept(sequence: Reply, window: Window, *tokens: int) -> list[Event]:
    return list(sequence.accept(window, [Drawn(token) for token in tokens]))


def text(events: Iterable[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def begun(sequence: Reply, first: int) -> Reply:
    """The reply with its first token, which comes from the prompt's last row."""
    accept(sequence, sequence.first_window(), first)
    return sequence


def test_the_first_window_runs_nothing_and_draws_at_the_prompts_end() -> None:
    """Its one draw is from the prompt's last row."""
    window = reply().first_window()
    assert (window.tokens, window.start, [draw.position for draw in window.draws]) == ((), 3, [3])


def test_a_window_is_the_last_token_and_the_guesses_each_row_with_its_own_position() -> None:
    """Row i draws the token behind guess i - 1."""
    window = begun(reply(drafts=(ONE, TWO, X, Y)), ONE).next_window(2, 3)
    assert (window.tokens, window.start) == ((ONE, TWO, X), 3)
    assert [(draw.row, draw.position) for draw in window.draws] == [(0, 4), (1, 5), (2, 6)]
    assert window.drafted == (True, True)


def test_guesses_are_kept_while_they_are_what_was_drawn() -> None:
    """The draw that differs from its guess is kept, and nothing behind it."""
    sequence = begun(reply(drafts=(ONE, TWO, X, Y)), ONE)
    events = accept(sequence, sequence.next_window(3, 4), TWO, Z, Y, X)
    assert text(events) == " two z"
    assert sequence.tokens == [ONE, TWO, Z]
    assert (sequence.drafted, sequence.accepted) == (3, 1)


def test_the_draw_behind_the_last_right_guess_is_a_token_more() -> None:
    """A window of n rows gives up to n tokens."""
    sequence = begun(reply(drafts=(ONE, TWO, X)), ONE)
    accept(sequence, sequence.next_window(2, 3), TWO, X, Y)
    assert sequence.tokens == [ONE, TWO, X, Y]


@pytest.mark.requirement("T-137")
def test_the_token_that_completes_a_stop_string_is_the_last_one() -> None:
    """ST-05: in a window that holds a stop string and passes the limit, the stop string wins, as it does serially."""
    sequence = begun(reply(drafts=(ONE, TWO, STOP, X, Y, Z), limits=Limits(stop=("STOP",)), limit=5), ONE)
    events = accept(sequence, sequence.next_window(15, 16), TWO, STOP, X, Y)
    assert sequence.tokens == [ONE, TWO, STOP]
    assert text(events) == " two"
    assert events[-1] == Stopped(0, "stop", "STOP", "STOP")


def test_a_stop_string_that_the_limits_token_completes_goes_before_the_limit() -> None:
    """The reply ended as the caller asked, at its very last token."""
    sequence = begun(reply(limits=Limits(stop=("STOP",)), limit=2), ONE)
    assert accept(sequence, sequence.next_window(3, 4), STOP)[-1] == Stopped(0, "stop", "STOP", "STOP")


def test_no_rows_are_offered_behind_the_limit() -> None:
    """A window is never longer than the tokens that may still come."""
    sequence = begun(reply(drafts=(ONE, TWO, X, Y), limit=3), ONE)
    assert len(sequence.next_window(15, 16).draws) == 2


def test_an_end_token_ends_the_reply_and_is_not_shown() -> None:
    """It counts, and adds no text; what was drawn behind it does not exist."""
    sequence = begun(reply(drafts=(ONE, TWO, END, X)), ONE)
    events = accept(sequence, sequence.next_window(15, 16), TWO, END, X)
    assert (text(events), sequence.tokens[-1]) == (" two", END)
    assert events[-1] == Stopped(0, "end", ended_by="<end>")


@pytest.mark.parametrize(("keep", "shown"), [(False, ""), (True, " x")])
def test_a_stop_token_ends_the_reply(keep: bool, shown: str) -> None:
    """The caller's stop token is left out of the text, unless stop text is to be kept."""
    sequence = begun(reply(limits=Limits(stop_token_ids=(X,), include_stop_str=keep)), ONE)
    events = accept(sequence, sequence.next_window(0, 1), X)
    assert (text(events), events[-1]) == (shown, Stopped(0, "stop", ended_by=" x"))


def test_a_forced_run_is_a_window_of_its_own() -> None:
    """Forced tokens need no drafter and no rounds of their own, and do not count as drafts."""
    sequence = reply(gates=[ForcedRun([ONE, TWO, STOP])])
    first = sequence.first_window()
    assert first.draws[0].forced == ONE
    accept(sequence, first, ONE)
    window = sequence.next_window(7, 8)
    assert window.tokens == (ONE, TWO, STOP)
    assert [draw.forced for draw in window.draws] == [TWO, STOP, None]
    assert window.drafted == (False, False)


def test_drafts_behind_a_forced_token_that_they_did_not_foresee_are_dropped() -> None:
    """They continue another text."""
    sequence = begun(reply(drafts=(ONE, X, Y, Z), gates=[ForcedRun([ONE, TWO])]), ONE)
    assert sequence.next_window(7, 8).tokens == (ONE, TWO)


def test_drafts_that_the_gates_do_not_permit_are_cut() -> None:
    """No row is spent on a guess that cannot be drawn, and each row has the mask of its own place."""
    mask = AllowedTokens({ONE, TWO}, TOKENIZER.size)
    window = begun(reply(drafts=(ONE, TWO, X, ONE), gates=[mask]), ONE).next_window(7, 8)
    assert window.tokens == (ONE, TWO)
    assert all(draw.allowed is not None for draw in window.draws)


def test_guesses_outside_the_vocabulary_never_reach_the_model() -> None:
    """A drafter cannot make the engine look up a token that does not exist."""
    for wrong in (-1, TOKENIZER.size):
        assert begun(reply(drafts=(ONE, wrong, X)), ONE).next_window(7, 8).tokens == (ONE,)


def test_penalties_count_along_the_guesses() -> None:
    """Each row's draw sees the tokens that stand before it if the guesses hold."""
    rule = SamplingRule(repetition_penalty=1.5)
    sequence = begun(reply(drafts=(ONE, TWO, TWO, X), rule=rule), ONE)
    window = sequence.next_window(3, 4)
    assert [dict(draw.counts) for draw in window.draws] == [
        {1: 1, 2: 1, 3: 1, ONE: 1},
        {1: 1, 2: 1, 3: 1, ONE: 1, TWO: 1},
        {1: 1, 2: 1, 3: 1, ONE: 1, TWO: 2},
        {1: 1, 2: 1, 3: 1, ONE: 1, TWO: 2, X: 1},
    ]


def test_a_dead_end_fails_before_anything_is_computed() -> None:
    """Constraints that leave no token are told, not sampled around."""
    sequence = reply(gates=[AllowedTokens(set(), TOKENIZER.size)])
    with pytest.raises(GenerationFailed, match="constraints allow none"):
        sequence.first_window()


class OnlyThen:
    """Allows every token first, and none after a given one."""

    def __init__(self, fatal: int) -> None:
        self._fatal = fatal

    @property
    def start(self) -> bool:
        return False

    def advance(self, state: Hashable, token: int) -> bool:
        return token == self._fatal

    def forced(self, state: Hashable) -> None:
        return

    def allowed(self, state: Hashable) -> NDArray[np.bool_] | None:
        return np.zeros(TOKENIZER.size, dtype=np.bool_) if state else None


def test_a_guess_that_leads_to_a_dead_end_is_no_row() -> None:
    """It may still be drawn; then the reply fails where the serial one does."""
    sequence = begun(reply(drafts=(ONE, TWO, X, Y), gates=[OnlyThen(X)]), ONE)
    window = sequence.next_window(7, 8)
    assert window.tokens == (ONE, TWO)
    accept(sequence, window, TWO, X)
    with pytest.raises(GenerationFailed, match="no token may follow token 3"):
        sequence.next_window(7, 8)


def test_a_row_that_cannot_be_drawn_fails_the_reply_after_what_came_before_it() -> None:
    """Tokens before the bad row are sent, as they are without drafts."""
    sequence = begun(reply(drafts=(ONE, TWO, X)), ONE)
    walk = sequence.accept(sequence.next_window(2, 3), [Drawn(TWO), Drawn(0, problem="not finite")])
    assert next(walk) == TextDelta(0, " two")
    with pytest.raises(GenerationFailed, match="token 3 of the reply cannot be drawn: not finite"):
        next(walk)


def test_the_serial_reference_offers_one_row() -> None:
    """`draft: false` takes neither drafts nor forced runs as guesses."""
    sequence = begun(reply(drafts=(ONE, TWO, X), gates=[ForcedRun([ONE, TWO])], draft=False), ONE)
    assert sequence.next_window(7, 8).tokens == (ONE,)


# ---- replay -----------------------------------------------------------------------------------------------


def test_a_replay_compares_and_sends_nothing_twice() -> None:
    """After a restart the tokens sent before are guesses, and their text is not sent again."""
    sequence = begun(reply(draft=False), ONE)
    accept(sequence, sequence.next_window(0, 1), TWO)
    sequence.restart()
    assert sequence.sent == (ONE, TWO) and sequence.replaying
    assert accept(sequence, sequence.first_window(), ONE) == []
    window = sequence.next_window(7, 8)
    assert window.tokens == (ONE, TWO)
    assert text(accept(sequence, window, TWO, X)) == " x"
    assert (sequence.drafted, sequence.accepted) == (0, 0)


def test_a_replay_that_differs_fails_the_reply() -> None:
    """What was sent cannot be taken back, so it is an error that names the token."""
    sequence = begun(reply(), ONE)
    sequence.restart()
    with pytest.raises(GenerationFailed, match=f"token 1 was {ONE} and is now {TWO}"):
        accept(sequence, sequence.first_window(), TWO)


def test_a_second_restart_expects_everything_that_was_sent() -> None:
    """Also when it comes in the middle of a replay."""
    sequence = begun(reply(), ONE)
    accept(sequence, sequence.next_window(0, 1), TWO)
    sequence.restart()
    accept(sequence, sequence.first_window(), ONE)
    sequence.restart()
    assert sequence.sent == (ONE, TWO)


def test_aborting_a_replay_sends_no_text() -> None:
    """All of its text was sent already."""
    sequence = begun(reply(limits=Limits(stop=("onetwo",))), ONE)
    sequence.restart()
    assert sequence.stop("abort") == [Stopped(0, "abort")]


def test_aborting_a_reply_sends_what_was_held_back() -> None:
    """Text that waited for a stop string belongs to the reply."""
    sequence = reply(limits=Limits(stop=("onetwo",)))
    assert accept(sequence, sequence.first_window(), ONE) == []
    assert sequence.stop("abort") == [TextDelta(0, "one"), Stopped(0, "abort")]


# ---- log-probabilities and the plan -----------------------------------------------------------------------


def test_every_token_carries_its_own_log_probability_and_bytes() -> None:
    """LP-03: tokens of one window do not share their first one's alternatives."""
    from tensorfold.ir import Alternative

    sequence = begun(reply(drafts=(ONE, TWO, X), logprobs=1), ONE)
    window = sequence.next_window(2, 3)
    assert [draw.logprobs for draw in window.draws] == [1, 1, 1]
    drawn = [Drawn(token, -float(token), (Alternative(token, b"", -float(token)),)) for token in (TWO, X, Y)]
    tokens = [
        token for event in sequence.accept(window, drawn) if isinstance(event, TextDelta) for token in event.tokens
    ]
    assert [(token.id, token.data, token.logprob) for token in tokens] == [
        (TWO, b" two", -float(TWO)),
        (X, b" x", -float(X)),
        (Y, b" y", -float(Y)),
    ]
    assert [token.alternatives[0].data for token in tokens] == [b" two", b" x", b" y"]
