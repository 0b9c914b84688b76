"""A round of several replies that fails is run again, one by one: the others have the bits that they have alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Output, Runner
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.step import Segment
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_decoder
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.replies import Replies, some_requests

EVERY = 3
"""Of the rounds of several requests, the one that fails."""


class Failing(Runner[Any]):
    """Computes everything and leaves its rows open, and then fails: now and then, and only where several share a step."""

    rounds = 0
    failed = 0

    def forward(self, segments: Sequence[Segment]) -> Output[Any]:
        output = super().forward(segments)
        if len(segments) > 1:
            Failing.rounds += 1
            if Failing.rounds % EVERY == 0:
                Failing.failed += 1
                raise RuntimeError("the device has lost this step")
        return output


def runner(kind: type[Runner[Any]]) -> Runner[Any]:
    """A fresh one over the fake family."""
    config = fake_config()
    geometry, session = FakeFamily().geometry(config), ReferenceBackend(chunk=16).open(BackendSettings())
    decoder = fake_decoder(session.packer, config)
    plan = plan_memory(geometry, session, lanes=4, context=256, budget=1 << 28)
    return kind(decoder, session, geometry, lanes=4, pages=plan.pages, identity="tiny")


def test_a_failed_round_changes_no_bit_of_any_reply() -> None:
    """Over a model with every kind of state, with drafts: tokens and log-probabilities are those of the serial run."""
    vocabulary = FakeFamily().geometry(fake_config()).vocabulary
    requests = some_requests([7 * number % vocabulary for number in range(45)])
    failing = Replies(lambda: runner(Failing), vocabulary).drafted_together(requests)
    assert failing == Replies(lambda: runner(Runner), vocabulary).serial(requests)
    assert Failing.failed, "no round has failed"
