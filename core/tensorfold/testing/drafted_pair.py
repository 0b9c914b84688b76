"""A model and its drafter in a checkpoint of its own, on one session: what it guesses, and what replies become of that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from structlog.testing import capture_logs

from tensorfold.chat.plain import PlainFormat
from tensorfold.compute.loading import load_decoder, load_drafter
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import HiddenRows, Runner
from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import CanPair, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.step import Segment
from tensorfold.engine.depth import Deepest
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Limits, Request, Sampling, TokensPrompt
from tensorfold.testing.family_model import feed, slot_of
from tensorfold.testing.toy_engine import answer_all, running
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

__all__ = ["DraftedPair", "without_layers"]


class _Borrowed(Runner[Any]):
    """A runner that leaves its session open."""

    def close(self) -> None:
        return


@dataclass(frozen=True, kw_only=True)
class DraftedPair:
    """A target and its drafter."""

    session: Session[Any]
    family: ModelFamily
    """One that pairs."""
    target: ModelConfig
    weights: TensorSource
    drafter: ModelConfig
    drafter_weights: TensorSource

    def runner(self, chunk: int = 16) -> Runner[Any]:
        """With room for four sequences."""
        family = self.family
        if not isinstance(family, CanPair):
            raise TypeError(f"the {family.name} family has no drafters in checkpoints of their own")
        decoder = load_decoder(family, self.target, self.weights, self.session.packer)
        paired = load_drafter(family, self.target, decoder, self.drafter, self.drafter_weights, self.session.packer)
        geometry = family.geometry(self.target).with_shared_draft()
        plan = plan_memory(geometry, self.session, lanes=4, context=256, budget=1 << 26, chunk=chunk)
        return _Borrowed(paired, self.session, geometry, lanes=4, pages=plan.pages, identity="tiny", chunk=chunk)

    def guesses(self, tokens: Sequence[int], count: int) -> NDArray[np.float32]:
        """Logits `[count, V]` of the tokens behind these, each guess the likeliest one before it."""
        runner = self.runner(chunk=32)
        slot, last = slot_of(runner), len(tokens) - 2
        feed(runner, slot, tokens[:last], [32], "chunk")
        output = runner.forward([Segment(slot, (tokens[last],), last)])
        runner.commit(slot, last + 1)
        token, found = tokens[-1], list[NDArray[np.float32]]()
        for _ in range(count):
            output = runner.draft([Segment(slot, (token,), last)], [HiddenRows(output, 0, 1)])
            found.append(runner.logits(output, [0])[0])
            token = int(found[-1].argmax())
        return np.stack(found)

    def answers(self, requests: Sequence[Request], *, together: bool) -> list[Answer]:
        """Replies whose guesses come from the drafter alone."""

        async def served() -> list[Answer]:
            tokenizer = ToyTokenizer([])
            engine = LocalEngine(
                self.runner(),
                prompts=ToyPrompts(tokenizer),
                tokenizer=tokenizer,
                chat=PlainFormat(),
                settings=EngineSettings(),
                depth=Deepest(),
            )
            async with running(engine):
                return await answer_all(engine, requests, together=together)

        return asyncio.run(served())

    def drafted(self, tokens: int) -> list[Answer]:
        """Replies of so many tokens that were drafted, all together.

        Raises:
            AssertionError: they are not those of serial replies, one after the other, or the drafter failed on the way.
        """
        vocabulary = self.family.geometry(self.target).vocabulary
        serial = self.answers(_requests(vocabulary, draft=False, tokens=tokens), together=False)
        with capture_logs() as logs:
            drafted = self.answers(_requests(vocabulary, draft=True, tokens=tokens), together=True)
        assert _told(drafted) == _told(serial)
        assert all(answer.usage.drafted_tokens == 0 for answer in serial)
        # A head that fails is turned off, and that is told.
        assert not [each for each in logs if each["log_level"] == "error"]
        return drafted


def without_layers(*models: dict[str, NDArray[np.float32]]) -> None:
    """Let layers add nothing to what is embedded, so that the next token follows from the last one."""
    for each in models:
        for name in each:
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                each[name] = np.zeros_like(each[name])
            elif name.endswith("layer_scalar"):
                each[name] = np.ones_like(each[name])


def _requests(vocabulary: int, *, draft: bool, tokens: int) -> list[Request]:
    """Greedy and sampled ones, with prompts of unlike lengths, up to 47 tokens."""
    samplings = (Sampling(temperature=0.0), Sampling(temperature=1.0, seed=4), Sampling(temperature=0.8, top_p=0.9))
    return [
        Request(
            id=str(number),
            prompt=TokensPrompt(tuple((7 * place + number) % vocabulary for place in range(5 + 21 * number))),
            sampling=sampling,
            limits=Limits(max_tokens=tokens, ignore_eos=True),
            logprobs=1,
            draft=draft,
        )
        for number, sampling in enumerate(samplings)
    ]


def _told(answers: Sequence[Answer]) -> list[Any]:
    """What must not depend on drafts."""
    return [(answer.token_sha, answer.choices) for answer in answers]
