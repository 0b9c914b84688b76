"""Several requests answered as one."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as some

from tensorfold.http.multiplex import Multiplexer
from tensorfold.ir import (
    Event,
    Failed,
    Finished,
    Progress,
    Queued,
    Started,
    Stopped,
    TextDelta,
    ThinkingDelta,
    Timings,
    ToolCallDelta,
    Usage,
    fold,
)


def reply(name: str, choices: int) -> list[Event]:
    """A reply whose every text tells whose it is."""
    events: list[Event] = [Queued(len(name)), Started(1), Progress(2, len(name), 1, 0.5)]
    for choice in range(choices):
        events += [ThinkingDelta(choice, f"{name}{choice}?"), TextDelta(choice, f"{name}{choice}!")]
        events += [
            ToolCallDelta(choice, 0, f"{name}{choice}", "f", "{}"),
            Stopped(choice, "stop", name, f"{name}{choice}."),
        ]
    usage = Usage(len(name), choices, 1, 1, 4, 2)
    return [*events, Finished(usage, Timings(0.1 * choices, 0.2, 0.3), tuple(f"{name}{c}" for c in range(choices)))]


def test_one_request_passes_unchanged() -> None:
    multiplexer = Multiplexer([3])
    events = reply("abc", 3)
    assert [multiplexer.feed(0, event) for event in events] == events


@given(some.lists(some.integers(1, 3), min_size=1, max_size=4), some.randoms())
def test_whatever_the_interleaving_choices_are_numbered_request_by_request(choices: list[int], dice: Random) -> None:
    names = ["ab", "cde", "fghi", "j"][: len(choices)]
    queues = {index: reply(name, count) for index, (name, count) in enumerate(zip(names, choices, strict=True))}
    multiplexer = Multiplexer(choices)
    joint: list[Event] = []
    while queues:
        index = dice.choice(sorted(queues))
        event = multiplexer.feed(index, queues[index].pop(0))
        if event is not None:
            joint.append(event)
        if not queues[index]:
            del queues[index]
    answer = fold(joint)
    expected = [f"{name}{choice}" for name, count in zip(names, choices, strict=True) for choice in range(count)]
    assert [choice.text for choice in answer.choices] == [f"{name}!" for name in expected]
    assert [choice.thinking for choice in answer.choices] == [f"{name}?" for name in expected]
    assert [choice.calls[0].id for choice in answer.choices] == expected
    assert [choice.ended_by for choice in answer.choices] == [f"{name}." for name in expected]
    assert list(answer.token_sha) == expected
    prompts, replies = sum(map(len, names)), sum(choices)
    assert answer.usage == Usage(prompts, replies, len(names), len(names), 4 * len(names), 2 * len(names))
    assert answer.timings == Timings(0.1 * max(choices), 0.2, 0.3)
    assert [event for event in joint if isinstance(event, Queued)] == [Queued(prompts)]
    assert [event for event in joint if isinstance(event, Started)] == [Started(len(names))]
    assert isinstance(joint[-1], Finished)


def test_the_first_failure_ends_the_joint_stream() -> None:
    multiplexer = Multiplexer([1, 1])
    assert multiplexer.feed(0, Queued(1)) is None
    assert multiplexer.feed(1, Queued(2)) == Queued(3)
    assert multiplexer.feed(1, Failed("broken")) == Failed("broken")
    assert multiplexer.feed(0, TextDelta(0, "more")) is None
    assert multiplexer.feed(0, Failed("also broken")) is None
