"""Steps that the cpu backend plays from a tape: the bits of steps that it is asked for anew, whatever happens between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import BackendSettings, CanCapture
from tensorfold.contracts.family import Decoder, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.step import Segment, Step
from tensorfold.testing.array_tensors import ArrayTensors
from tensorfold.testing.declared_checkpoint import declared_arrays
from tensorfold.testing.family_configs import FAMILY_CONFIGS
from tensorfold.testing.family_model import Model, TinyCheckpoint, drafted, feed, logits_of, slot_of
from tensorfold_backend_cpu.capturing import CapturedDecoder
from tensorfold_backend_cpu.rows import Rows
from tensorfold_backend_cpu.session import CpuSession
from tensorfold_model_gemma.family import GemmaFamily
from tensorfold_model_glm.family import GlmFamily
from tensorfold_model_llama.family import LlamaFamily
from tensorfold_model_nemotron.family import NemotronFamily
from tensorfold_model_qwen.family import QwenFamily

NAMES = ("llama", "llama by operations", "gemma3", "gemma4", "gemma4, E", "qwen3_5", "qwen3_5_moe", "nemotron_h")
"""Layers that are one list of calls, the same by single operations, layers with further norms and factors, with inputs of
their own, with states of fixed size, and with experts."""
WIDTHS = (1, 3, 1, 3, 8, 1, 8)
"""Rows of steps: each number is recorded, and played after others."""


class Asked:
    """A decoder, and how often it was asked for its operations."""

    def __init__(self, decoder: Decoder[Rows]) -> None:
        self._decoder = decoder
        self.forwards: list[int] = []
        """Rows of each."""
        self.draft = None if decoder.draft is None else Asked(decoder.draft)

    def prepare(self, step: Step[Rows]) -> Mapping[str, NDArray[Any]]:
        return self._decoder.prepare(step)

    def forward(self, ops: Ops[Rows], step: Step[Rows]) -> Rows:
        if step.kind == "rows":
            self.forwards.append(step.rows)
        return self._decoder.forward(ops, step)

    def logits(self, ops: Ops[Rows], hidden: Rows) -> Rows:
        return self._decoder.logits(ops, hidden)


@pytest.fixture(scope="module")
def session() -> Iterator[CpuSession]:
    """On two threads."""
    from tensorfold_backend_cpu import CpuBackend

    session = CpuBackend().open(BackendSettings(threads=2))
    yield session
    session.close()


def model(name: str, session: CpuSession) -> Model:
    """Tiny and random, whose decoder counts."""
    short, _, unfused = name.partition(" by ")
    config = ModelConfig(FAMILY_CONFIGS[short], {}, "config.json")
    families: tuple[ModelFamily, ...] = (LlamaFamily(), GemmaFamily(), QwenFamily(), NemotronFamily(), GlmFamily())
    family = next(each for each in families if each.claim(config) is not None)
    checkpoint = TinyCheckpoint(config, ArrayTensors(declared_arrays(family, config.values)))
    with pytest.MonkeyPatch.context() as patch:
        if unfused:
            patch.setattr(type(session.packer), "block", lambda packer, block: block)
        made = Model(family, checkpoint, session)
    made.decoder = Asked(made.decoder)
    return made


def asked(of: Model) -> list[int]:
    """Rows of each step whose operations the decoder was asked for."""
    assert isinstance(of.decoder, Asked)
    return of.decoder.forwards


def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runners that are made from here on record nothing."""
    monkeypatch.setattr(CpuSession, "capture", lambda session, decoder: decoder)


def test_a_session_captures_decoders(session: CpuSession) -> None:
    assert isinstance(session, CanCapture)
    assert isinstance(session.capture(model("llama", session).decoder), CapturedDecoder)


@pytest.mark.parametrize("name", NAMES)
def test_played_steps_have_the_bits_of_steps_that_are_asked_for(
    name: str, session: CpuSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sequences in turn, over page borders, through a fork, a snapshot and its restoring."""
    own = model(name, session)
    played = _story(own)
    plain(monkeypatch)
    asked_for = _story(own)
    for one, other in zip(played, asked_for, strict=True):
        assert one.tobytes() == other.tobytes()


def _story(own: Model) -> list[NDArray[np.float32]]:
    runner = own.runner()
    tokens = own.tokens(90)
    first, second = slot_of(runner), slot_of(runner)
    logits = [feed(runner, first, tokens[:58], (58,), "chunk"), feed(runner, second, tokens[:5], (5,), "chunk")]
    logits += [feed(runner, slot, tokens[60:84], WIDTHS, "rows") for slot in (first, second)]
    kept = runner.snapshot(second)
    other = runner.fork(first)
    assert other is not None
    logits += [feed(runner, slot, tokens[20:40], WIDTHS, "rows") for slot in (second, other)]
    runner.restore(second, kept)
    logits.append(feed(runner, second, tokens[40:60], WIDTHS, "rows"))
    together = [Segment(slot, tokens[:2], runner.length(slot), want="all") for slot in (other, first, second)]
    output = runner.forward(together)
    logits += [logits_of(runner, output, place) for place in range(3)]
    return logits


@pytest.mark.parametrize("name", NAMES)
def test_a_decoder_is_asked_once_for_each_number_of_rows(name: str, session: CpuSession) -> None:
    """Behind a step of more rows, so that no block has to grow."""
    own = model(name, session)
    runner = own.runner()
    slot = slot_of(runner)
    feed(runner, slot, own.tokens(64), (64,), "chunk")
    feed(runner, slot, own.tokens(8), (8,), "rows")
    asked(own).clear()
    feed(runner, slot, own.tokens(25), WIDTHS, "rows")
    assert asked(own) == [1, 3]


def test_a_step_of_many_calls_is_recorded(session: CpuSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than are written on one piece of memory, as a large model has them."""
    name = "qwen3_5_moe"
    with monkeypatch.context() as patch:
        patch.setattr("tensorfold_backend_cpu.machine._TAPE", 16)
        own = model(name, session)
        pieces = _story(own)
        assert len(asked(own)) < 20
    plain(monkeypatch)
    for one, other in zip(pieces, _story(model(name, session)), strict=True):
        assert one.tobytes() == other.tobytes()


def test_a_decoder_that_computes_on_the_host_is_asked_every_time(session: CpuSession) -> None:
    own = model("glm_moe_dsa", session)
    runner = own.runner()
    feed(runner, slot_of(runner), own.tokens(25), WIDTHS, "rows")
    assert tuple(asked(own)) == WIDTHS


@pytest.mark.parametrize("kept", [0, 1, 2, 5])
def test_some_rows_of_a_played_step_are_kept(kept: int, session: CpuSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The states after those, whatever was played in between."""
    own = model("qwen3_5", session)

    def story() -> list[NDArray[np.float32]]:
        runner = own.runner()
        tokens = own.tokens(60)
        slots = [slot_of(runner) for _ in range(2)]
        for slot in slots:
            feed(runner, slot, tokens[:20], (20,), "chunk")
        logits = []
        for _ in range(3):
            starts = [runner.length(slot) for slot in slots]
            output = runner.forward(
                [Segment(slot, tokens[at : at + 5], at, want="all") for slot, at in zip(slots, starts, strict=True)]
            )
            logits += [logits_of(runner, output, place) for place in range(2)]
            # A step of one row alone comes between, in a sequence of its own.
            other = slot_of(runner)
            logits.append(feed(runner, other, tokens[:1], (1,), "rows"))
            runner.release(other)
            for slot, at in zip(slots, starts, strict=True):
                runner.commit(slot, at + kept)
        return logits

    played = story()
    plain(monkeypatch)
    for one, other in zip(played, story(), strict=True):
        assert one.tobytes() == other.tobytes()


def test_draft_heads_have_the_same_bits(session: CpuSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their inputs are rows of other steps."""
    own = model("qwen3_5", session)
    played = drafted(own.runner(), own.tokens(60), further=2)
    plain(monkeypatch)
    for one, other in zip(played, drafted(own.runner(), own.tokens(60), further=2), strict=True):
        assert one.tobytes() == other.tobytes()


def test_what_a_step_gave_outlives_the_next_one(session: CpuSession) -> None:
    """Rows that are still held are not written over by a step of the same tape."""
    own = model("llama", session)
    runner = own.runner()
    slot = slot_of(runner)
    outputs = []
    logits = []
    for token in own.tokens(6):
        outputs.append(runner.forward([Segment(slot, (token,), runner.length(slot), want="all")]))
        logits.append(logits_of(runner, outputs[-1]))
        runner.commit(slot, runner.length(slot) + 1)
    for output, before in zip(outputs, logits, strict=True):
        assert logits_of(runner, output).tobytes() == before.tobytes()


def test_runners_of_one_decoder_keep_to_their_own_states(session: CpuSession) -> None:
    """Steps of two runners in turn."""
    own = model("llama", session)
    tokens = own.tokens(20)
    alone = own.runner()
    expected = feed(alone, slot_of(alone), tokens, (1,), "rows")
    pair = (own.runner(), own.runner())
    slots = [slot_of(each) for each in pair]
    for place in range(20):
        for runner, slot in zip(pair, slots, strict=True):
            got = feed(runner, slot, tokens[place : place + 1], (1,), "rows")
            assert got.tobytes() == expected[place : place + 1].tobytes()
