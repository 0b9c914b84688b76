"""How gates compose, and the gates of every engine."""

from __future__ import annotations

from tensorfold.engine.gates import AllowedTokens, ForcedRun, GateSet, MinTokens


def test_end_tokens_are_masked_until_there_are_enough_tokens() -> None:
    """`min_tokens` keeps end tokens back for exactly so many tokens."""
    gates = GateSet((MinTokens({2, 3}, 2, 5),))
    states = gates.start
    for _ in range(2):
        verdict = gates.verdict(states)
        assert [verdict.permits(token) for token in range(5)] == [True, True, False, False, True]
        states = gates.advance(states, 0)
    assert gates.verdict(states).allowed is None


def test_masks_are_joined() -> None:
    """A token may come next only when every gate allows it."""
    gates = GateSet((AllowedTokens({1, 2}, 5), AllowedTokens({2, 3}, 5)))
    verdict = gates.verdict(gates.start)
    assert [token for token in range(5) if verdict.permits(token)] == [2]


def test_the_first_gate_that_forces_decides_and_masks_are_not_asked() -> None:
    """What is forced goes through, in the order of the gates."""
    gates = GateSet((AllowedTokens({1}, 5), ForcedRun([4]), ForcedRun([3, 2])))
    states = gates.start
    forced: list[int | None] = []
    for _ in range(3):
        verdict = gates.verdict(states)
        forced.append(verdict.forced)
        states = gates.advance(states, verdict.forced or 0)
    assert forced == [4, 2, None]
    assert gates.verdict(gates.start).permits(4) and not gates.verdict(gates.start).permits(1)


def test_gates_that_leave_no_token_are_a_dead_end() -> None:
    """Nothing may be drawn, and that is said before anything is."""
    gates = GateSet((AllowedTokens({1}, 5), AllowedTokens({2}, 5)))
    assert gates.verdict(gates.start).dead
    assert not GateSet((ForcedRun([1]), *gates.gates)).verdict((0, None, None)).dead


def test_going_back_is_keeping_the_old_state() -> None:
    """A state is a value: advancing makes a new one and leaves the old one as it was."""
    gates = GateSet((ForcedRun([7, 8]),))
    after = gates.advance(gates.start, 7)
    assert (gates.verdict(gates.start).forced, gates.verdict(after).forced) == (7, 8)


def test_without_gates_every_token_may_come() -> None:
    """No masks are made."""
    verdict = GateSet().verdict(())
    assert verdict.allowed is None and verdict.forced is None and verdict.permits(3) and not verdict.dead
