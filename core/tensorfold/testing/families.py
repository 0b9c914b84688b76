"""The contract that every model family keeps, on every backend: subclass it, give a family and a tiny checkpoint.

    class TestMyFamily(ModelFamilyContract):
        refused = {"hidden_act": "selu"}

        @pytest.fixture
        def family(self):
            return MyFamily()

        @pytest.fixture(params=["dense", "windowed"])
        def checkpoint(self, request):
            return TinyCheckpoint(config, source)

Without a `session` fixture of its own it runs on the numpy reference. A tiny checkpoint has a vocabulary of 64 or more,
a window of 128 or more and head widths of a few numbers; sparse attention wants 16 index heads, or it turns on ties.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.declaring import count_parameters
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import HiddenRows, Output, Runner
from tensorfold.compute.weights import TensorSource, check_weights, load_decoder
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.family import Decoder, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import Group
from tensorfold.contracts.step import Kind, Segment
from tensorfold.contracts.tensors import Tensor, TensorInfo
from tensorfold.errors import CheckpointUnsupported, WeightsMismatch
from tensorfold.testing.replies import Replies, some_requests

__all__ = ["ModelFamilyContract", "TinyCheckpoint"]

LENGTH = 96
"""Tokens of the sequences compared: more than a page, so that tables, windows and pools are crossed."""


@dataclass(frozen=True, slots=True)
class TinyCheckpoint:
    """What a family is tried on."""

    config: ModelConfig
    source: TensorSource


class _Borrowed(Runner[Any]):
    """A runner that leaves its session open."""

    def close(self) -> None:
        return


class Model:
    """A family's tiny checkpoint on one session, and the ways to run it that the contract compares."""

    def __init__(self, family: ModelFamily, checkpoint: TinyCheckpoint, session: Session[Any]) -> None:
        self.geometry = family.geometry(checkpoint.config)
        self.decoder: Decoder[Any] = load_decoder(family, checkpoint.config, checkpoint.source, session.packer)
        self.session = session

    def runner(self) -> Runner[Any]:
        """A fresh one, with room for four sequences."""
        return self._runner(Runner, None)

    def borrowed(self) -> Runner[Any]:
        """The same with short chunks, for an engine: the session outlives it."""
        return self._runner(_Borrowed, 16)

    def _runner(self, kind: type[Runner[Any]], chunk: int | None) -> Runner[Any]:
        context = min(self.geometry.window, 256)
        plan = plan_memory(self.geometry, self.session, lanes=4, context=context, budget=1 << 28, chunk=chunk)
        return kind(self.decoder, self.session, self.geometry, lanes=4, pages=plan.pages, identity="tiny", chunk=chunk)

    def tokens(self, count: int, seed: int = 0) -> tuple[int, ...]:
        """A sequence."""
        drawn = np.random.default_rng(seed).integers(0, self.geometry.vocabulary, count)
        return tuple(int(token) for token in drawn)


def _slot(runner: Runner[Any]) -> int:
    slot = runner.acquire()
    assert slot is not None, "the runner has no free lane"
    return slot


def _logits(runner: Runner[Any], output: Output[Any], segment: int = 0) -> NDArray[np.float32]:
    first, last = output.bounds[segment]
    return runner.logits(output, range(first, last))


def _feed(
    runner: Runner[Any], slot: int, tokens: Sequence[int], pieces: Sequence[int], kind: Kind
) -> NDArray[np.float32]:
    """Give a slot these tokens in pieces of these sizes, the last one again and again, and commit all: `[n, V]`."""
    logits: list[NDArray[np.float32]] = []
    done = 0
    while done < len(tokens):
        size = pieces[min(len(logits), len(pieces) - 1)]
        part = tuple(tokens[done : done + size])
        output = runner.forward([Segment(slot, part, runner.length(slot), want="all", kind=kind)])
        logits.append(_logits(runner, output))
        runner.commit(slot, runner.length(slot) + len(part))
        done += len(part)
    return np.concatenate(logits)


class ModelFamilyContract:
    """See the module."""

    tolerance: ClassVar[float] = 2e-4
    """How far float32 logits may differ where only the order of sums differs (chunks of other sizes)."""
    refused: ClassVar[Mapping[str, Any]] = {}
    """Config keys, each with a value that this family must refuse by naming the key."""
    ignored: ClassVar[bool] = False
    """Whether the tiny checkpoints hold tensors that are not run."""
    steering: ClassVar[tuple[str, ...]] = ()
    """Patterns of tensors whose values decide how the model is built: these alone are read before all is known to fit."""

    @pytest.fixture
    def family(self) -> ModelFamily:
        """The family."""
        raise NotImplementedError

    @pytest.fixture
    def checkpoint(self) -> TinyCheckpoint:
        """A checkpoint of it; parametrize the fixture to try several."""
        raise NotImplementedError

    @pytest.fixture
    def session(self) -> Iterator[Session[Any]]:
        """A float32 session of the backend to run on."""
        from tensorfold.testing.reference import ReferenceBackend

        session = ReferenceBackend().open(BackendSettings(dtype="float32"))
        yield session
        session.close()

    @pytest.fixture
    def model(self, family: ModelFamily, checkpoint: TinyCheckpoint, session: Session[Any]) -> Model:
        """The checkpoint, loaded."""
        return Model(family, checkpoint, session)

    # ---- what it claims and declares -----------------------------------------------------------------------

    def test_it_claims_its_checkpoint_and_says_why(self, family: ModelFamily, checkpoint: TinyCheckpoint) -> None:
        """A claim has a score above zero and a reason for people."""
        claim = family.claim(checkpoint.config)
        assert claim is not None and claim.score > 0 and claim.reason

    def test_it_claims_no_config_of_another_kind(self, family: ModelFamily) -> None:
        """A config that names another model type is left to others."""
        config = ModelConfig({"model_type": "no-such-model", "architectures": ["NoSuchModel"]}, {}, "config.json")
        assert family.claim(config) is None

    def test_what_it_does_not_run_is_refused_by_name(self, family: ModelFamily, checkpoint: TinyCheckpoint) -> None:
        """Each key of `refused`, set to its value, is named in a refusal before any weight is looked at."""
        for key, value in self.refused.items():
            config = checkpoint.config
            changed = ModelConfig({**config.values, key: value}, config.generation, config.where)
            with pytest.raises(CheckpointUnsupported, match=key):
                family.claim(changed)

    def test_the_declared_parameters_are_those_of_the_checkpoint(
        self, family: ModelFamily, checkpoint: TinyCheckpoint
    ) -> None:
        """What is counted from the config alone is what is read, where shapes are said; no tensor stays unused."""
        read = check_weights(family, checkpoint.config, checkpoint.source)
        counted = count_parameters(family, checkpoint.config)
        if not counted.undeclared:
            assert counted.main + counted.draft == sum(int(np.prod(info.shape)) for info in read)
        if not self.ignored:
            assert {info.name for info in read} == set(checkpoint.source.names())

    # ---- weights that do not fit ---------------------------------------------------------------------------

    def test_every_tensor_that_does_not_fit_is_named_before_a_weight_is_read(
        self, family: ModelFamily, checkpoint: TinyCheckpoint, session: Session[Any]
    ) -> None:
        """A missing, a misshapen and a foreign tensor are told together, and nothing was read."""
        read = check_weights(family, checkpoint.config, checkpoint.source)
        missing, misshapen = read[-1].name, next(info.name for info in read if info.name != read[-1].name)
        source = _Damaged(checkpoint.source, missing, misshapen, "not_of_this.model", self.steering)
        with pytest.raises(WeightsMismatch) as caught:
            load_decoder(family, checkpoint.config, source, session.packer)
        for name in (missing, misshapen, "not_of_this.model"):
            assert name in str(caught.value)
        assert not source.was_read

    # ---- shapes --------------------------------------------------------------------------------------------

    def test_hidden_rows_and_logits_have_the_declared_shapes(self, model: Model) -> None:
        """`[R, hidden]` and `[N, vocabulary]`, finite, in float32 on the host."""
        runner, tokens = model.runner(), model.tokens(5)
        output = runner.forward([Segment(_slot(runner), tokens, 0, want="all")])
        logits = _logits(runner, output)
        assert tuple(output.hidden.shape) == (5, model.geometry.hidden)
        assert logits.shape == (5, model.geometry.vocabulary)
        assert logits.dtype == np.float32 and np.isfinite(logits).all()

    def test_a_prompt_in_chunks_is_the_prompt_at_once(self, model: Model) -> None:
        """How a prompt is cut changes no more than the order of sums; so does reading it row by row."""
        tokens = model.tokens(LENGTH)
        runner = model.runner()
        whole = _feed(runner, _slot(runner), tokens, [LENGTH], "chunk")
        cut = _feed(runner, _slot(runner), tokens, [7, 1, 33, 20], "chunk")
        rows = _feed(runner, _slot(runner), tokens, [16], "rows")
        assert np.abs(whole - cut).max() < self.tolerance
        assert np.abs(whole - rows).max() < self.tolerance

    def test_every_row_depends_on_the_rows_before_it(self, model: Model) -> None:
        """Another first token changes a later row's logits: nothing that is kept is without effect."""
        tokens = model.tokens(6)
        other = ((tokens[0] + 1) % model.geometry.vocabulary, *tokens[1:])
        runner = model.runner()
        first = _feed(runner, _slot(runner), tokens, [6], "rows")
        second = _feed(runner, _slot(runner), other, [6], "rows")
        assert np.abs(first[-1] - second[-1]).max() > 0

    # ---- rows, bit for bit ---------------------------------------------------------------------------------

    def test_rows_have_the_same_bits_however_many_share_a_step(self, model: Model) -> None:
        """One token at a time, a few at a time: the same logits, bit for bit."""
        tokens = model.tokens(LENGTH)
        runner = model.runner()
        serial = _feed(runner, _slot(runner), tokens, [1], "rows")
        pieces = _feed(runner, _slot(runner), tokens, [5, 13, 2, 8, 3], "rows")
        np.testing.assert_array_equal(serial, pieces)

    def test_sequences_in_one_step_have_the_same_bits_as_alone(self, model: Model) -> None:
        """Three sequences of unlike lengths, several rows each, in either order."""
        runner = model.runner()
        prompts = [model.tokens(70, seed=1), model.tokens(9, seed=2), model.tokens(33, seed=3)]
        more = [model.tokens(count, seed=10 + count) for count in (3, 1, 6)]
        alone: list[NDArray[np.float32]] = []
        for prompt, tokens in zip(prompts, more, strict=True):
            slot = _slot(runner)
            _feed(runner, slot, prompt, [len(prompt)], "chunk")
            alone.append(_feed(runner, slot, tokens, [len(tokens)], "rows"))
            runner.release(slot)
        for order in ([0, 1, 2], [2, 0, 1]):
            slots = {number: _slot(runner) for number in order}
            for number in order:
                _feed(runner, slots[number], prompts[number], [len(prompts[number])], "chunk")
            output = runner.forward(
                [Segment(slots[number], more[number], len(prompts[number]), want="all") for number in order]
            )
            for place, number in enumerate(order):
                np.testing.assert_array_equal(_logits(runner, output, place), alone[number])
                runner.release(slots[number])

    # ---- going back, bit for bit ---------------------------------------------------------------------------

    def test_wrong_drafts_leave_no_trace(self, model: Model) -> None:
        """Rows of which some are kept, and rows that are all dropped: what follows is as if never drafted."""
        tokens, wrong = model.tokens(LENGTH), model.tokens(LENGTH, seed=9)
        runner = model.runner()
        serial, drafted = _slot(runner), _slot(runner)
        start = 61
        for slot in (serial, drafted):
            _feed(runner, slot, tokens[:start], [start], "chunk")
        expected = _feed(runner, serial, tokens[start:], [1], "rows")
        got: list[NDArray[np.float32]] = []
        position = start
        for right, drafts in _ROUNDS:
            part = (*tokens[position : position + right], *wrong[position : position + drafts])
            output = runner.forward([Segment(drafted, part, position, want="all")])
            got.append(_logits(runner, output)[:right])
            position += right
            runner.commit(drafted, position)
        np.testing.assert_array_equal(np.concatenate(got), expected[: position - start])

    def test_a_restored_snapshot_goes_on_as_the_sequence_did(self, model: Model) -> None:
        """A snapshot, in another slot after the first has gone on, and through the host: the same bits follow."""
        tokens = model.tokens(LENGTH)
        runner = model.runner()
        slot = _slot(runner)
        _feed(runner, slot, tokens[:71], [50, 21], "chunk")
        snapshot = runner.snapshot(slot)
        expected = _feed(runner, slot, tokens[71:], [1], "rows")
        exported = runner.export(snapshot)
        other = _slot(runner)
        _feed(runner, other, model.tokens(20, seed=4), [20], "chunk")
        runner.restore(other, snapshot)
        assert runner.length(other) == 71
        np.testing.assert_array_equal(_feed(runner, other, tokens[71:], [1], "rows"), expected)
        imported = runner.import_(exported)
        runner.restore(other, imported)
        np.testing.assert_array_equal(_feed(runner, other, tokens[71:], [4], "rows"), expected)
        runner.drop(snapshot)
        runner.drop(imported)

    def test_a_fork_and_its_origin_do_not_see_each_other(self, model: Model) -> None:
        """Both go on from the shared positions with other tokens, and each has the bits that it has alone."""
        shared, left, right = model.tokens(67), model.tokens(12, seed=5), model.tokens(12, seed=6)
        runner = model.runner()
        slot = _slot(runner)
        _feed(runner, slot, shared, [67], "chunk")
        fork = runner.fork(slot)
        assert fork is not None
        for sequence, tokens in ((slot, left), (fork, right)):
            _feed(runner, sequence, tokens[:4], [2], "rows")
        got = [_feed(runner, each, tokens[4:], [3], "rows") for each, tokens in ((slot, left), (fork, right))]
        runner.release(slot)
        runner.release(fork)
        for tokens, logits in zip((left, right), got, strict=True):
            alone = _slot(runner)
            _feed(runner, alone, shared, [67], "chunk")
            np.testing.assert_array_equal(_feed(runner, alone, tokens, [1], "rows")[4:], logits)
            runner.release(alone)

    def test_a_slot_that_was_used_before_begins_empty(self, model: Model) -> None:
        """A released slot leaves nothing to the next sequence, open rows included."""
        tokens = model.tokens(10)
        runner = model.runner()
        fresh = _slot(runner)
        expected = _feed(runner, fresh, tokens, [10], "rows")
        runner.forward([Segment(fresh, model.tokens(7, seed=7), 10)])
        runner.release(fresh)
        np.testing.assert_array_equal(_feed(runner, _slot(runner), tokens, [10], "rows"), expected)

    # ---- through the engine --------------------------------------------------------------------------------

    def test_replies_do_not_depend_on_how_they_are_computed(self, model: Model) -> None:
        """Drafted by copies and by the model's own head, beside others, and from a kept prefix: the serial replies."""
        requests = some_requests(model.tokens(45))
        replies = Replies(model.borrowed, model.geometry.vocabulary)
        serial = replies.serial(requests)
        assert replies.drafted_together(requests) == serial
        assert replies.resumed(requests) == serial

    # ---- the draft head ------------------------------------------------------------------------------------

    def test_the_draft_head_has_states_of_its_own(self, model: Model) -> None:
        """It follows the target's rows one token ahead; rows that it makes from its own rows are dropped without a
        trace, and the target does not notice it."""
        if model.decoder.draft is None:
            pytest.skip("no draft head")
        tokens = model.tokens(41)
        runner = model.runner()
        expected = _feed(runner, _slot(runner), tokens[:40], [30, 4, 6], "rows")
        plain, plain_drafts = _drafted(runner, tokens, further=0)
        np.testing.assert_array_equal(plain, expected)
        for further in (1, 2):
            target, drafts = _drafted(runner, tokens, further=further)
            np.testing.assert_array_equal(drafts, plain_drafts)
            np.testing.assert_array_equal(target, plain)


def _drafted(
    runner: Runner[Any], tokens: Sequence[int], *, further: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The target's logits and the draft head's, round by round, with `further` drafted rows in each that are dropped."""
    slot = _slot(runner)
    group: Group = "draft"
    target: list[NDArray[np.float32]] = []
    drafts: list[NDArray[np.float32]] = []
    done = 0
    for rows in (30, 4, 6):
        output = runner.forward([Segment(slot, tuple(tokens[done : done + rows]), done, want="all")])
        target.append(_logits(runner, output))
        runner.commit(slot, done + rows)
        ahead = Segment(slot, tuple(tokens[done + 1 : done + rows + 1]), done, want="all")
        output = runner.draft([ahead], [HiddenRows(output, 0, rows)])
        drafts.append(_logits(runner, output))
        done += rows
        runner.commit(slot, done, group)
        snapshot = runner.snapshot(slot)
        for more in range(further):
            likeliest = int(_logits(runner, output)[-1].argmax())
            last = HiddenRows(_last_row(output), 0, 1)
            output = runner.draft([Segment(slot, (likeliest,), done + more, want="all")], [last])
            if more + 1 < further:
                runner.commit(slot, done + more + 1, group)
            else:
                runner.commit(slot, done + more, group)
        if further > 1:
            runner.restore(slot, snapshot)
        runner.drop(snapshot)
    runner.release(slot)
    return np.concatenate(target), np.concatenate(drafts)


def _last_row(output: Output[Any]) -> Output[Any]:
    """The same rows, seen from the last of the only segment."""
    last = output.spans[0][1]
    return Output(output.hidden, output.picked, output.bounds, ((last - 1, last),))


_ROUNDS: tuple[tuple[int, int], ...] = ((1, 3), (0, 4), (2, 2), (3, 0), (1, 5), (4, 1), (1, 0), (2, 6), (5, 2), (1, 1))
"""Right and wrong rows of each step."""


class _Damaged:
    """A source with one tensor missing, one misshapen and one of another model; notes whether a weight was read."""

    def __init__(
        self, source: TensorSource, missing: str, misshapen: str, foreign: str, steering: tuple[str, ...]
    ) -> None:
        self._source = source
        self._missing = missing
        self._misshapen = misshapen
        self._foreign = foreign
        self._steering = steering
        self.was_read = False

    def names(self) -> Iterator[str]:
        yield from (name for name in self._source.names() if name != self._missing)
        yield self._foreign

    def info(self, name: str) -> TensorInfo:
        if name == self._foreign:
            return TensorInfo(name, (3,), "F32", 12)
        info = self._source.info(name)
        if name != self._misshapen:
            return info
        return TensorInfo(name, (*info.shape[:-1], info.shape[-1] + 1), info.kind, info.stored_bytes)

    def read(self, name: str) -> Tensor:
        self.was_read |= not any(fnmatch.fnmatchcase(name, each) for each in self._steering)
        return self._source.read(name)
