"""Every family on every backend keeps the engine's promises: its replies do not depend on how they were computed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.family import Decoder, Geometry, ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import TableKey
from tensorfold.engine.depth import Deepest
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Label, Limits, Request, Sampling, Score, Scored, TokensPrompt
from tensorfold.testing.array_tensors import ArrayTensors
from tensorfold.testing.declared_checkpoint import declared_arrays
from tensorfold.testing.family_configs import FAMILY_CONFIGS
from tensorfold.testing.random_tensors import ReplacedTensors
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.ticking import ticking
from tensorfold.testing.tiny_tokenizer import TINY_VOCABULARY
from tensorfold.testing.toy_engine import answer, running
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer
from tensorfold_model_flash_next.family import FlashNextFamily
from tensorfold_model_gemma.family import GemmaFamily
from tensorfold_model_glm.family import GlmFamily
from tensorfold_model_llama.family import LlamaFamily
from tensorfold_model_nemotron.family import NemotronFamily
from tensorfold_model_qwen.family import QwenFamily

from .engine_replies import same, together

FAMILIES: tuple[ModelFamily, ...] = (
    LlamaFamily(),
    QwenFamily(),
    FlashNextFamily(),
    GlmFamily(),
    NemotronFamily(),
    GemmaFamily(),
)
DRAFTING = ("qwen3_5", "qwen3_5_moe", "qwen4_exp", "glm_moe_dsa", "glm5_next", "nemotron_h")
WINDOW = 256
TOKENIZER = ToyTokenizer(words=[f"<{number}>" for number in range(TINY_VOCABULARY - 257)])
PROMPT = tuple((7 * place + place * place) % 90 + 2 for place in range(41))
"""Two whole chunks and nine tokens."""


@dataclass(frozen=True)
class Model:
    """A tiny random model on a backend."""

    decoder: Decoder[Any]
    geometry: Geometry
    session: Session[Any]

    def runner(self, lanes: int, positions: int | None) -> Runner[Any]:
        """A fresh one; `positions`: how many all sequences share of what grows without a window."""
        plan = plan_memory(self.geometry, self.session, lanes=lanes, context=WINDOW, budget=1 << 28, chunk=16)
        pages = dict(plan.pages)
        if positions is not None:
            pages |= {key: positions // 64 for key in pages if key == TableKey("main", None)}
        return Runner(self.decoder, self.session, self.geometry, lanes=lanes, pages=pages, identity="tiny", chunk=16)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("reference", marks=pytest.mark.slow),
        pytest.param("cpu", marks=pytest.mark.slow),
        pytest.param("torch", marks=pytest.mark.torch),
        pytest.param("mlx", marks=(pytest.mark.mlx, pytest.mark.slow)),
    ],
)
def session(request: pytest.FixtureRequest) -> Iterator[Session[Any]]:
    settings = BackendSettings(device="cpu", dtype="float32", threads=1)
    session: Session[Any]
    match request.param:
        case "cpu":
            from tensorfold_backend_cpu import CpuBackend

            session = CpuBackend().open(settings)
        case "torch":
            from tensorfold_backend_torch import TorchBackend

            session = TorchBackend().open(settings)
        case "mlx":
            from tensorfold_backend_mlx import MlxBackend

            pytest.importorskip("mlx.core")
            session = MlxBackend().open(settings)
        case _:
            session = ReferenceBackend().open(settings)
    yield session
    session.close()


@pytest.fixture(scope="module", params=FAMILY_CONFIGS)
def model(request: pytest.FixtureRequest, session: Session[Any]) -> Model:
    config = ModelConfig(FAMILY_CONFIGS[request.param], {}, "config.json")
    family = next(each for each in FAMILIES if each.claim(config) is not None)
    arrays = declared_arrays(family, config.values)
    integers = {name: each for name, each in arrays.items() if each.dtype.kind == "i"}
    floats = {name: np.zeros(1, np.float32) if name in integers else each for name, each in arrays.items()}
    source = ReplacedTensors(ArrayTensors(floats), integers)
    decoder = load_decoder(family, config, source, session.packer)
    assert (decoder.draft is not None) == (request.param in DRAFTING)
    return Model(decoder, family.geometry(config), session)


# ---- requests -----------------------------------------------------------------------------------------------

GREEDY = Sampling(temperature=0.0)
SAMPLED = Sampling(temperature=0.9, seed=11)


def request(
    sampling: Sampling = GREEDY, *, prompt: tuple[int, ...] = PROMPT, tokens: int = 20, **fields: Any
) -> Request:
    limits = Limits(max_tokens=tokens, ignore_eos=fields.pop("ignore_eos", True))
    return Request(id="r", prompt=TokensPrompt(prompt), sampling=sampling, limits=limits, **fields)


OTHERS = (
    request(SAMPLED, prompt=PROMPT[3:20], tokens=14),
    request(GREEDY, prompt=PROMPT[::-1], tokens=18),
    request(Sampling(temperature=0.9, seed=4), prompt=(5, 6, 7), tokens=9),
)


def engine_of(model: Model, *, lanes: int = 4, positions: int | None = None, **fields: Any) -> LocalEngine:
    """Its clock ticks with each look, for on a machine that stutters one reply could be over before the next begins."""
    return LocalEngine(
        model.runner(lanes, positions),
        prompts=ToyPrompts(TOKENIZER),
        tokenizer=TOKENIZER,
        chat=PlainFormat(),
        depth=Deepest(),
        settings=EngineSettings(growth=1, decode_share=2.0),
        clock=ticking(),
        **fields,
    )


def serve(model: Model, *requests: Request, **fields: Any) -> tuple[list[Answer], dict[str, Any]]:
    """The answers of requests that run at the same time, and the engine's figures."""

    return together(lambda policy: engine_of(model, policy=policy, **fields), *requests)


def serial(model: Model, each: Request) -> Answer:
    """Alone, one token a round."""
    (reply,), _ = serve(model, msgspec.structs.replace(each, draft=False), lanes=1)
    return reply


# ---- the promises -------------------------------------------------------------------------------------------


@pytest.mark.requirement("T-104", "T-113")
def test_drafted_replies_equal_serial_ones_with_their_log_probabilities(model: Model) -> None:
    """By the checkpoint's own draft head where it has one; every family has the serial path, and tells what it chose
    from."""
    for sampling in (GREEDY, SAMPLED):
        each = request(sampling, logprobs=3)
        reference = serial(model, each)
        (reply,), _ = serve(model, each)
        same(reply, reference)
        (choice,) = reply.choices
        assert len(choice.tokens) == 20
        for token in choice.tokens:
            assert token.logprob is not None and -np.inf < token.logprob <= 0 and len(token.alternatives) >= 3
            assert all(other.logprob <= token.alternatives[0].logprob for other in token.alternatives)
        if model.decoder.draft is not None:
            assert reply.usage.drafted_tokens > 0


@pytest.mark.requirement("T-156")
def test_replies_in_shared_rounds_equal_solo_ones(model: Model) -> None:
    """Several replies have rows in one round, which is computed once for all of them."""
    references = [serial(model, each) for each in OTHERS]
    undrafted = [msgspec.structs.replace(each, draft=False) for each in OTHERS]
    together, details = serve(model, *undrafted)
    for reply, reference in zip(together, references, strict=True):
        same(reply, reference)
    longest = max(each.limits.max_tokens or 0 for each in OTHERS)
    assert longest <= details["rounds_total"] + 1 < sum(each.limits.max_tokens or 0 for each in OTHERS)
    for reply, reference in zip(serve(model, *OTHERS)[0], references, strict=True):
        same(reply, reference)


def test_resumed_and_repeated_replies_equal_fresh_ones(model: Model) -> None:
    """Preempted for memory and replayed; and again from a kept prefix, recurrent states and all."""
    requests = [request(sampling, prompt=(*PROMPT, 9), tokens=36) for sampling in (GREEDY, SAMPLED)]
    references = [serial(model, each) for each in requests]
    together, details = serve(model, *requests, positions=192, lanes=2)
    assert details["preemptions_total"] > 0
    for reply, reference in zip(together, references, strict=True):
        same(reply, reference)

    async def again() -> list[Answer]:
        async with running(engine_of(model)) as engine:
            return [await answer(engine, each) for each in (*requests, *requests)]

    replies = asyncio.run(again())
    assert all(reply.usage.cached_tokens for reply in replies[2:])
    for reply, reference in zip(replies, (*references, *references), strict=True):
        same(reply, reference)


@pytest.mark.requirement("T-070")
def test_labels_are_scored(model: Model) -> None:
    """Each label's log-probability is that of its tokens in a reply that was made to say them."""
    each = Score(id="s", prompt=TokensPrompt(PROMPT), labels=tuple(Label((word,)) for word in ((5,), (6, 7), (6, 8))))

    async def main() -> tuple[Scored, Scored]:
        async with running(engine_of(model)) as engine:
            return await engine.score(each), await engine.score(each)

    first, second = asyncio.run(main())
    assert first.labels == second.labels
    shared = first.labels[1].spellings[0].logprobs[0]
    assert first.labels[2].spellings[0].logprobs[0] == shared
    reference = serial(model, request(tokens=1, logprobs=20)).choices[0].tokens[0]
    known = {token.id: token.logprob for token in reference.alternatives}
    for label in first.labels:
        (spelling,) = label.spellings
        assert all(-np.inf < logprob < 0 for logprob in spelling.logprobs)
        if spelling.ids[0] in known:
            assert spelling.logprobs[0] == pytest.approx(known[spelling.ids[0]], abs=1e-5)
    probabilities = [np.exp(label.logprob) for label in first.labels]
    assert 0 < sum(probabilities) < 1


@pytest.mark.requirement("T-141")
def test_end_tokens_are_ignored_when_that_is_asked(model: Model) -> None:
    """With a token of its own reply as the end, a reply goes on or ends there."""
    whole = serial(model, request(logprobs=0))
    ids = [token.id for token in whole.choices[0].tokens]
    ending = replace(model, geometry=replace(model.geometry, stop_ids=frozenset({ids[7]})))
    (ignoring, ending_there), _ = serve(ending, request(logprobs=0), request(ignore_eos=False, logprobs=0))
    assert [token.id for token in ignoring.choices[0].tokens] == ids
    assert ending_there.choices[0].reason == "end"
    assert ending_there.usage.completion_tokens == ids.index(ids[7]) + 1
