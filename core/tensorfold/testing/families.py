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

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.declaring import count_parameters
from tensorfold.compute.loading import check_weights, load_decoder
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.step import Segment
from tensorfold.errors import CheckpointUnsupported, WeightsMismatch
from tensorfold.testing.family_model import (
    LENGTH,
    ROUNDS,
    DamagedSource,
    Model,
    TinyCheckpoint,
    drafted,
    feed,
    logits_of,
    slot_of,
)
from tensorfold.testing.gated_replies import GatedReplies, gated_requests
from tensorfold.testing.replies import Replies, some_requests

__all__ = ["ModelFamilyContract", "TinyCheckpoint"]


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
        """A claim has a score above zero and a reason for people.

        Fix: return `Claim(100, "model_type NAME")` when `config.model_type` is yours.
        """
        claim = family.claim(checkpoint.config)
        assert claim is not None and claim.score > 0 and claim.reason

    def test_it_claims_no_config_of_another_kind(self, family: ModelFamily) -> None:
        """A config that names another model type is left to others.

        Fix: return None from `claim` for every other `model_type`, and do not guess.
        """
        config = ModelConfig({"model_type": "no-such-model", "architectures": ["NoSuchModel"]}, {}, "config.json")
        assert family.claim(config) is None

    def test_what_it_does_not_run_is_refused_by_name(self, family: ModelFamily, checkpoint: TinyCheckpoint) -> None:
        """Each key of `refused`, set to its value, is named in a refusal before any weight is looked at.

        Fix: in `claim`, call `config.require(KEY, VALUE)` for what the decoder takes for granted.
        """
        for key, value in self.refused.items():
            config = checkpoint.config
            changed = ModelConfig({**config.values, key: value}, config.generation, config.where)
            with pytest.raises(CheckpointUnsupported, match=key):
                family.claim(changed)

    def test_the_declared_parameters_are_those_of_the_checkpoint(
        self, family: ModelFamily, checkpoint: TinyCheckpoint
    ) -> None:
        """What is counted from the config alone is what is read, where shapes are said; no tensor stays unused.

        Fix: say the shapes that `build` asks for; ask for every tensor, or drop it from the example.
        """
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
        """A missing, a misshapen and a foreign tensor are told together, and nothing was read.

        Fix: give every `weights.linear`, `embedding` and `vector` its `shape`, from the config.
        """
        read = check_weights(family, checkpoint.config, checkpoint.source)
        missing, misshapen = read[-1].name, next(info.name for info in read if info.name != read[-1].name)
        source = DamagedSource(checkpoint.source, missing, misshapen, "not_of_this.model", self.steering)
        with pytest.raises(WeightsMismatch) as caught:
            load_decoder(family, checkpoint.config, source, session.packer)
        for name in (missing, misshapen, "not_of_this.model"):
            assert name in str(caught.value)
        assert not source.was_read

    # ---- shapes --------------------------------------------------------------------------------------------

    def test_hidden_rows_and_logits_have_the_declared_shapes(self, model: Model) -> None:
        """`[R, hidden]` and `[N, vocabulary]`, finite, in float32 on the host.

        Fix: compare `Geometry.hidden` and `vocabulary` with what `forward` and `logits` return.
        """
        runner, tokens = model.runner(), model.tokens(5)
        output = runner.forward([Segment(slot_of(runner), tokens, 0, want="all")])
        logits = logits_of(runner, output)
        assert tuple(output.hidden.shape) == (5, model.geometry.hidden)
        assert logits.shape == (5, model.geometry.vocabulary)
        assert logits.dtype == np.float32 and np.isfinite(logits).all()

    def test_a_prompt_in_chunks_is_the_prompt_at_once(self, model: Model) -> None:
        """How a prompt is cut changes no more than the order of sums; so does reading it row by row.

        Fix: look for a state that is used and not declared, and for positions counted from the step's start.
        """
        tokens = model.tokens(LENGTH)
        runner = model.runner()
        whole = feed(runner, slot_of(runner), tokens, [LENGTH], "chunk")
        cut = feed(runner, slot_of(runner), tokens, [7, 1, 33, 20], "chunk")
        rows = feed(runner, slot_of(runner), tokens, [16], "rows")
        assert np.abs(whole - cut).max() < self.tolerance
        assert np.abs(whole - rows).max() < self.tolerance

    def test_every_row_depends_on_the_rows_before_it(self, model: Model) -> None:
        """Another first token changes a later row's logits: nothing that is kept is without effect.

        Fix: pass the rows through a stateful operation (`ops.attend`, `short_conv`, ...) with its declared name.
        """
        tokens = model.tokens(6)
        other = ((tokens[0] + 1) % model.geometry.vocabulary, *tokens[1:])
        runner = model.runner()
        first = feed(runner, slot_of(runner), tokens, [6], "rows")
        second = feed(runner, slot_of(runner), other, [6], "rows")
        assert np.abs(first[-1] - second[-1]).max() > 0

    # ---- rows, bit for bit ---------------------------------------------------------------------------------

    def test_rows_have_the_same_bits_however_many_share_a_step(self, model: Model) -> None:
        """One token at a time, a few at a time: the same logits, bit for bit.

        Fix: let nothing depend on the number of rows: no mean, no padding, no operation of the array library's own.
        """
        tokens = model.tokens(LENGTH)
        runner = model.runner()
        serial = feed(runner, slot_of(runner), tokens, [1], "rows")
        pieces = feed(runner, slot_of(runner), tokens, [5, 13, 2, 8, 3], "rows")
        np.testing.assert_array_equal(serial, pieces)

    def test_sequences_in_one_step_have_the_same_bits_as_alone(self, model: Model) -> None:
        """Three sequences of unlike lengths, several rows each, in either order.

        Fix: use `step.positions` and the stateful operations, never the row's place in the step.
        """
        runner = model.runner()
        prompts = [model.tokens(70, seed=1), model.tokens(9, seed=2), model.tokens(33, seed=3)]
        more = [model.tokens(count, seed=10 + count) for count in (3, 1, 6)]
        alone: list[NDArray[np.float32]] = []
        for prompt, tokens in zip(prompts, more, strict=True):
            slot = slot_of(runner)
            feed(runner, slot, prompt, [len(prompt)], "chunk")
            alone.append(feed(runner, slot, tokens, [len(tokens)], "rows"))
            runner.release(slot)
        for order in ([0, 1, 2], [2, 0, 1]):
            slots = {number: slot_of(runner) for number in order}
            for number in order:
                feed(runner, slots[number], prompts[number], [len(prompts[number])], "chunk")
            output = runner.forward(
                [Segment(slots[number], more[number], len(prompts[number]), want="all") for number in order]
            )
            for place, number in enumerate(order):
                np.testing.assert_array_equal(logits_of(runner, output, place), alone[number])
                runner.release(slots[number])

    # ---- going back, bit for bit ---------------------------------------------------------------------------

    def test_wrong_drafts_leave_no_trace(self, model: Model) -> None:
        """Rows of which some are kept, and rows that are all dropped: what follows is as if never drafted.

        Fix: declare every state in `Geometry.states`, and keep no array in the decoder.
        """
        tokens, wrong = model.tokens(LENGTH), model.tokens(LENGTH, seed=9)
        runner = model.runner()
        serial, drafted = slot_of(runner), slot_of(runner)
        start = 61
        for slot in (serial, drafted):
            feed(runner, slot, tokens[:start], [start], "chunk")
        expected = feed(runner, serial, tokens[start:], [1], "rows")
        got: list[NDArray[np.float32]] = []
        position = start
        for right, drafts in ROUNDS:
            part = (*tokens[position : position + right], *wrong[position : position + drafts])
            output = runner.forward([Segment(drafted, part, position, want="all")])
            got.append(logits_of(runner, output)[:right])
            position += right
            runner.commit(drafted, position)
        np.testing.assert_array_equal(np.concatenate(got), expected[: position - start])

    def test_a_restored_snapshot_goes_on_as_the_sequence_did(self, model: Model) -> None:
        """A snapshot, in another slot after the first has gone on, and through the host: the same bits follow.

        Fix: declare every state in `Geometry.states`, and keep no array in the decoder.
        """
        tokens = model.tokens(LENGTH)
        runner = model.runner()
        slot = slot_of(runner)
        feed(runner, slot, tokens[:71], [50, 21], "chunk")
        snapshot = runner.snapshot(slot)
        expected = feed(runner, slot, tokens[71:], [1], "rows")
        exported = runner.export(snapshot)
        other = slot_of(runner)
        feed(runner, other, model.tokens(20, seed=4), [20], "chunk")
        runner.restore(other, snapshot)
        assert runner.length(other) == 71
        np.testing.assert_array_equal(feed(runner, other, tokens[71:], [1], "rows"), expected)
        imported = runner.import_(exported)
        runner.restore(other, imported)
        np.testing.assert_array_equal(feed(runner, other, tokens[71:], [4], "rows"), expected)
        runner.drop(snapshot)
        runner.drop(imported)

    def test_a_fork_and_its_origin_do_not_see_each_other(self, model: Model) -> None:
        """Both go on from the shared positions with other tokens, and each has the bits that it has alone.

        Fix: declare every state in `Geometry.states`, and keep no array in the decoder.
        """
        shared, left, right = model.tokens(67), model.tokens(12, seed=5), model.tokens(12, seed=6)
        runner = model.runner()
        slot = slot_of(runner)
        feed(runner, slot, shared, [67], "chunk")
        fork = runner.fork(slot)
        assert fork is not None
        for sequence, tokens in ((slot, left), (fork, right)):
            feed(runner, sequence, tokens[:4], [2], "rows")
        got = [feed(runner, each, tokens[4:], [3], "rows") for each, tokens in ((slot, left), (fork, right))]
        runner.release(slot)
        runner.release(fork)
        for tokens, logits in zip((left, right), got, strict=True):
            alone = slot_of(runner)
            feed(runner, alone, shared, [67], "chunk")
            np.testing.assert_array_equal(feed(runner, alone, tokens, [1], "rows")[4:], logits)
            runner.release(alone)

    def test_a_slot_that_was_used_before_begins_empty(self, model: Model) -> None:
        """A released slot leaves nothing to the next sequence, open rows included.

        Fix: declare every state in `Geometry.states`, and keep no array in the decoder.
        """
        tokens = model.tokens(10)
        runner = model.runner()
        fresh = slot_of(runner)
        expected = feed(runner, fresh, tokens, [10], "rows")
        runner.forward([Segment(fresh, model.tokens(7, seed=7), 10)])
        runner.release(fresh)
        np.testing.assert_array_equal(feed(runner, slot_of(runner), tokens, [10], "rows"), expected)

    # ---- through the engine --------------------------------------------------------------------------------

    def test_replies_do_not_depend_on_how_they_are_computed(self, model: Model) -> None:
        """Drafted by copies and by the model's own head, beside others, and from a kept prefix: the serial replies.

        Fix: look at the claims above first.
        """
        requests = some_requests(model.tokens(45))
        replies = Replies(model.borrowed, model.geometry.vocabulary)
        serial = replies.serial(requests)
        assert replies.drafted_together(requests) == serial
        assert replies.resumed(requests) == serial

    def test_gated_replies_do_not_depend_on_how_they_are_computed(self, model: Model) -> None:
        """Replies whose reasoning is cut, that have to be a call, or that a schema binds: serial, and drafted
        beside each other, the same.

        Fix: look at the claims above first.
        """
        bound = importlib.util.find_spec("xgrammar") is not None and bool(model.geometry.stop_ids)
        requests = gated_requests(bound=bound)
        replies = GatedReplies(model.borrowed, model.geometry)
        serial = replies.serial(requests)
        assert serial[0].usage.reasoning_tokens > 0
        assert serial[1].choices[0].calls
        for answer, reference in zip(replies.drafted_together(requests), serial, strict=True):
            assert answer.token_sha == reference.token_sha
            assert answer.choices == reference.choices
            assert answer.usage.reasoning_tokens == reference.usage.reasoning_tokens

    # ---- the draft head ------------------------------------------------------------------------------------

    def test_the_draft_head_has_states_of_its_own(self, model: Model) -> None:
        """It follows the target's rows one token ahead; rows that it makes from its own rows are dropped without a trace,
        and the target does not notice it.

        Fix: declare the draft head's states in group `draft`, and let it use no others.
        """
        if model.decoder.draft is None:
            pytest.skip("no draft head")
        tokens = model.tokens(41)
        runner = model.runner()
        expected = feed(runner, slot_of(runner), tokens[:40], [30, 4, 6], "rows")
        plain, plain_drafts = drafted(runner, tokens, further=0)
        np.testing.assert_array_equal(plain, expected)
        for further in (1, 2):
            target, drafts = drafted(runner, tokens, further=further)
            np.testing.assert_array_equal(drafts, plain_drafts)
            np.testing.assert_array_equal(target, plain)
