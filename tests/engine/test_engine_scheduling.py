"""Whose turn it is: prompts beside replies, short before long, foreground before background."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from tensorfold.contracts.step import Kind, Step
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.scheduler import ROUNDS
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Event, Finished, Limits, Request, TextDelta, TextPrompt
from tensorfold.testing.scripted import Stall
from tensorfold.testing.toy_engine import running, toy_engine

CHUNK = 8


@dataclass(frozen=True)
class Ran:
    """One step, as the device saw it."""

    kind: Kind
    prompts: tuple[str, ...]
    """The first token of the sequence in each segment: prompts begin with different letters."""
    tokens: int


class Recorder:
    """Remembers every step, and holds one of the first until all requests of a test are there."""

    def __init__(self, hold: int) -> None:
        """`hold` counts from 1."""
        self._hold = hold
        self.steps: list[Ran] = []
        self.stall = Stall()
        self._letters: dict[int, str] = {}

    def __call__(self, step: Step[Any]) -> None:
        for segment in step.segments:
            if segment.kind == "chunk":
                self._letters[segment.slot] = chr(segment.tokens[0])
        letters = tuple(self._letters[segment.slot] for segment in step.segments)
        self.steps.append(Ran(step.kind, letters, step.rows))
        if len(self.steps) >= self._hold:
            self.stall()

    def seconds(self) -> float:
        """A clock that steps alone move."""
        return sum(1.0 if step.kind == "chunk" else 0.1 for step in self.steps)

    def chunks(self) -> str:
        """Whose chunks ran, in order."""
        return "".join(step.prompts[0] for step in self.steps if step.kind == "chunk")

    def order(self) -> str:
        """Chunks by their prompt's letter, rounds as a dot."""
        return "".join(step.prompts[0] if step.kind == "chunk" else "." for step in self.steps)


def prompt(letter: str, chunks: int) -> str:
    return letter * (CHUNK * chunks)


def request(letter: str, chunks: int, reply: int = 4, **fields: Any) -> Request:
    limits = Limits(max_tokens=reply, ignore_eos=True)
    return Request(id=letter, prompt=TextPrompt(prompt(letter, chunks)), limits=limits, **fields)


def serve(
    *requests: Request, hold: int = 1, timed: bool = False, **engine_fields: Any
) -> tuple[Recorder, list[list[Event]]]:
    """Run requests: the others arrive together while step `hold` of the first one is held. `timed`: each chunk takes a
    second and each round a tenth of one.
    """
    recorder = Recorder(hold)
    if timed:
        engine_fields["clock"] = recorder.seconds

    async def main() -> list[list[Event]]:
        engine: LocalEngine = toy_engine(chunk=CHUNK, on_step=recorder, **engine_fields)
        async with running(engine):
            first = await engine.submit(requests[0])
            while not recorder.stall.entered.is_set():
                await asyncio.sleep(0.001)
            others = [await engine.submit(each) for each in requests[1:]]
            recorder.stall.release.set()
            return [[event async for event in stream] for stream in (first, *others)]

    return recorder, asyncio.run(main())


def text(sent: Sequence[Event]) -> str:
    return "".join(event.text for event in sent if isinstance(event, TextDelta))


@pytest.mark.requirement("T-142", "T-155")
def test_several_replies_advance_in_one_step() -> None:
    """Four requests that are past their prompts share every round."""
    recorder, _ = serve(*(request(letter, 1, reply=20) for letter in "abcd"), settings=EngineSettings(decode_share=0.0))
    assert [step.prompts for step in recorder.steps if step.kind == "rows"] == [("a", "b", "c", "d")] * 19


@pytest.mark.requirement("T-155")
def test_no_more_run_at_once_than_there_are_lanes() -> None:
    """The others wait and are served."""
    recorder, sent = serve(*(request(letter, 1, reply=5) for letter in "abcdef"), lanes=2)
    assert max(len(step.prompts) for step in recorder.steps) == 2
    assert len(sent) == 6


@pytest.mark.requirement("T-143", "T-145", "T-147")
def test_a_short_prompt_does_not_wait_behind_a_long_one() -> None:
    """LC-03: a one-chunk prompt that arrives during a twenty-chunk one runs at the next chunk's turn."""
    recorder, sent = serve(request("l", 20), request("s", 1))
    assert recorder.chunks()[:3] == "lsl"
    assert recorder.chunks().count("l") == 20
    assert all(len(each) > 3 for each in sent)


@pytest.mark.requirement("T-146")
def test_a_long_prompt_among_short_ones_is_not_starved() -> None:
    """It is passed over eight times, then it is next."""
    recorder, _ = serve(request("a", 1), request("l", 3), *(request(letter, 1) for letter in "bcdefghijkmn"), lanes=16)
    assert recorder.chunks().index("l") == 1 + 8, "neither sooner, for the others are shorter, nor later"


@pytest.mark.requirement("T-110", "T-144", "T-150", "T-164")
def test_background_prompts_wait_for_foreground_ones() -> None:
    """LC-03: a background request waits for both of the others, however short it is."""
    recorder, _ = serve(request("l", 20), request("b", 1, priority="background"), request("s", 1))
    assert recorder.chunks().startswith("ls")
    assert recorder.chunks().endswith("b")


def test_running_replies_get_rounds_between_the_chunks_of_a_prompt() -> None:
    """Every chunk of a long prompt is followed by at least one round of the replies that run."""
    recorder, _ = serve(request("a", 1, reply=60), request("l", 6))
    order = recorder.order()
    assert "ll" not in order[: order.rindex("l")]


@pytest.mark.requirement("T-149")
def test_without_a_decode_share_prompts_run_whole_in_order_of_arrival() -> None:
    """`--decode-share 0` prefills each prompt at once, the older one first."""
    recorder, _ = serve(
        request("a", 2, reply=30), request("l", 5), request("s", 1), settings=EngineSettings(decode_share=0.0)
    )
    assert recorder.order().startswith("aallllls.")
    assert recorder.chunks() == "aallllls"


@pytest.mark.requirement("T-149", "T-144")
def test_without_a_decode_share_background_does_not_take_back_what_it_has_yielded() -> None:
    """Where that does not suffice for the foreground prompt, the background one came first, and a reply holds the rest."""
    recorder, sent = serve(
        request("g", 1, reply=100),
        request("b", 9, reply=40, priority="background"),
        request("f", 20),
        positions=256,
        window=256,
        settings=EngineSettings(decode_share=0.0, growth=200),
    )
    assert all(isinstance(each[-1], Finished) for each in sent)
    assert recorder.chunks().count("b") <= 2 * 9, "it is computed again once, and not after every round"


@pytest.mark.requirement("T-148")
@pytest.mark.parametrize(("share", "rounds"), [(0.01, 1), (None, 3), (0.45, 5), (0.95, 10), (100.0, ROUNDS)], ids=str)
def test_running_replies_get_their_share_of_each_chunks_time(share: float | None, rounds: int) -> None:
    """Behind each chunk replies get rounds for a quarter of its time by default; one at least, and a bound at most."""
    settings = EngineSettings() if share is None else EngineSettings(decode_share=share)
    recorder, _ = serve(request("a", 1, reply=400), request("l", 10), settings=settings, timed=True)
    order = recorder.order()
    assert order[order.index("l") : order.rindex("l")].count(".") == 9 * rounds


@pytest.mark.requirement("T-151", "T-153", "T-161")
def test_background_gives_its_lane_to_foreground_and_loses_nothing() -> None:
    """A running background reply is replayed later; its client sees one whole reply."""
    back = request("b", 2, reply=40, priority="background")
    _, (alone,) = serve(back, lanes=1)
    recorder, (resumed, _) = serve(back, request("f", 1, reply=3), lanes=1, hold=8)
    assert recorder.chunks() == "bbfb", "the replay begins where its prompt's first chunk was kept"
    assert text(resumed) == text(alone)
    assert isinstance(resumed[-1], Finished) and isinstance(alone[-1], Finished)
    assert resumed[-1].token_sha == alone[-1].token_sha
    assert resumed[-1].usage == alone[-1].usage


def test_foreground_does_not_give_its_lane_to_anybody() -> None:
    """A request that waits for a lane waits until there is one."""
    recorder, _ = serve(request("a", 2, reply=40), request("f", 1, reply=3), lanes=1, hold=8)
    assert recorder.chunks() == "aaf"


@pytest.mark.requirement("T-160")
def test_background_keeps_its_lane_while_there_is_a_free_one() -> None:
    """Only when every lane is taken does a running background reply yield one."""
    back = request("b", 2, reply=40, priority="background")
    recorder, (sent, _) = serve(back, request("f", 1, reply=3), lanes=2, hold=8)
    assert recorder.chunks() == "bbf"
    assert isinstance(sent[-1], Finished)


@pytest.mark.requirement("T-152")
def test_background_gives_its_memory_to_foreground() -> None:
    """A foreground prompt that finds no room takes that of a running background reply, which is replayed later."""
    back = request("b", 2, reply=200, priority="background")
    tight: dict[str, Any] = {"lanes": 4, "positions": 256, "window": 256, "settings": EngineSettings(growth=200)}
    _, (alone,) = serve(back, **tight)
    recorder, (resumed, front) = serve(back, request("f", 2, reply=150), hold=8, **tight)
    assert recorder.chunks().startswith("bbff")
    assert text(resumed) == text(alone) and isinstance(front[-1], Finished)


@pytest.mark.requirement("T-165", "T-147", "T-166")
def test_foreground_enters_at_the_next_border_of_a_background_chunk() -> None:
    """A background prompt of many chunks lets a foreground one in after the chunk that is being computed."""
    recorder, sent = serve(request("b", 20, priority="background"), request("f", 2))
    assert recorder.chunks().startswith("bff")
    assert recorder.chunks().count("b") == 20
    assert all(isinstance(each[-1], Finished) for each in sent)
