"""A reply does not depend on how it was computed: serial, drafted, among others, resumed, forked, streamed.

Every test runs on the scripted model, whose every token depends on all tokens before it, and on the fake family, which
has every kind of state.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from tensorfold.chat.plain import PlainFormat
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.contracts.gates import Gate
from tensorfold.contracts.policy import Waiting
from tensorfold.contracts.states import PagedSpec, TableKey
from tensorfold.engine.copies import CopyDrafting
from tensorfold.engine.depth import Deepest
from tensorfold.engine.drafts import Drafter, Drafting
from tensorfold.engine.engine import LocalEngine
from tensorfold.engine.gates import AllowedTokens, ForcedRun
from tensorfold.engine.keys import choice_key
from tensorfold.engine.policies import DefaultPolicy
from tensorfold.engine.settings import EngineSettings
from tensorfold.ir import Answer, Limits, Request, Sampling, TokensPrompt, fold
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_decoder
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.scripted import scripted_geometry, scripted_runner
from tensorfold.testing.ticking import ticking
from tensorfold.testing.toy_engine import events, running
from tensorfold.testing.toy_tokenizer import ToyPrompts, ToyTokenizer

VOCABULARY = 96
WINDOW = 256
TOKENIZER = ToyTokenizer()

MakeRunner: TypeAlias = Callable[[int, int], Runner[Any]]
"""A runner of so many lanes whose sequences share so many positions."""


def scripted(lanes: int, positions: int) -> Runner[Any]:
    geometry = scripted_geometry(vocabulary=VOCABULARY, window=WINDOW, stop_ids=frozenset({1}))
    return scripted_runner([], geometry, lanes=lanes, chunk=8, positions=positions)


def scripted_head(lanes: int, positions: int) -> Runner[Any]:
    geometry = scripted_geometry(vocabulary=VOCABULARY, window=WINDOW, stop_ids=frozenset({1}))
    return scripted_runner([], geometry, lanes=lanes, chunk=8, positions=positions, equal=False, wrong=3)


def every_state(lanes: int, positions: int) -> Runner[Any]:
    return fake(lanes, positions, recurrent_draft=True)


def every_state_deep(lanes: int, positions: int) -> Runner[Any]:
    """Its draft head can guess several tokens ahead."""
    return fake(lanes, positions, recurrent_draft=False)


def every_state_on_mlx(lanes: int, positions: int) -> Runner[Any]:
    """Where chunks and rows have kernels of their own."""
    pytest.importorskip("mlx.core")
    from tensorfold_backend_mlx import MlxBackend

    return fake(lanes, positions, recurrent_draft=True, session=MlxBackend().open(BackendSettings(device="cpu")))


def fake(lanes: int, positions: int, *, recurrent_draft: bool, session: Session[Any] | None = None) -> Runner[Any]:
    config = fake_config(vocabulary=VOCABULARY, window=WINDOW, recurrent_draft=recurrent_draft)
    geometry = FakeFamily().geometry(config)
    if session is None:
        session = ReferenceBackend().open(BackendSettings())
    keys = {TableKey.of(spec) for spec in geometry.states.values() if isinstance(spec, PagedSpec)}
    whole = lanes * (WINDOW // 64 + 2)
    pages = {key: positions // 64 if key == TableKey("main", None) else whole for key in keys}
    decoder = fake_decoder(session.packer, config)
    return Runner(decoder, session, geometry, lanes=lanes, pages=pages, identity="fake", chunk=8)


MODELS = [
    pytest.param(scripted, id="scripted"),
    pytest.param(scripted_head, id="scripted head"),
    pytest.param(every_state, id="every state"),
    pytest.param(every_state_deep, id="every state, deep head", marks=pytest.mark.slow),
    pytest.param(every_state_on_mlx, id="every state on mlx", marks=[pytest.mark.slow, pytest.mark.mlx]),
]


@pytest.fixture(params=MODELS)
def runner(request: pytest.FixtureRequest) -> MakeRunner:
    make: MakeRunner = request.param
    return make


# ---- drafters ---------------------------------------------------------------------------------------------


@dataclass
class Recalled:
    """Drafts what each prompt's reply was before, wrong at every n-th place (0: never)."""

    replies: dict[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
    wrong_every: int = 0

    def begin(self, prompt: Sequence[int]) -> Drafter:
        reply = list(self.replies.get(tuple(prompt), ()))
        if self.wrong_every:
            for place in range(self.wrong_every - 1, len(reply), self.wrong_every):
                reply[place] = (reply[place] + 1) % VOCABULARY
        return _Recalled(tuple(reply))


class _Recalled:
    def __init__(self, reply: tuple[int, ...]) -> None:
        self._reply = reply
        self._kept = 0

    def extend(self, token: int) -> None:
        self._kept += 1

    def propose(self, most: int) -> Sequence[int]:
        return self._reply[self._kept : self._kept + most]


class Nonsense:
    """Drafts the same token for ever."""

    def begin(self, prompt: Sequence[int]) -> Drafter:
        return self

    def extend(self, token: int) -> None:
        return

    def propose(self, most: int) -> Sequence[int]:
        return (5,) * most


# ---- requests ---------------------------------------------------------------------------------------------

PROMPT = tuple((7 * place + place * place) % 90 + 2 for place in range(27))
"""Three whole chunks and three tokens."""

SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=0.9, seed=11),
    "filtered": Sampling(temperature=1.3, top_k=40, top_p=0.9, min_p=0.02, seed=5),
    "penalized": Sampling(temperature=0.8, seed=2, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2),
    "biased": Sampling(temperature=1.0, seed=3, logit_bias=((40, 4.0), (41, -100.0))),
}


def request(
    sampling: Sampling = SAMPLINGS["sampled"],
    *,
    prompt: tuple[int, ...] = PROMPT,
    tokens: int = 40,
    ignore_eos: bool = True,
    stop: tuple[str, ...] = (),
    **fields: Any,
) -> Request:
    return Request(
        id="r",
        prompt=TokensPrompt(prompt),
        sampling=sampling,
        limits=Limits(max_tokens=tokens, ignore_eos=ignore_eos, stop=stop),
        **fields,
    )


OTHERS = tuple(
    request(sampling, prompt=tuple((number * 13 + place) % 90 + 3 for place in range(5 + 6 * number)), tokens=25)
    for number, sampling in enumerate(SAMPLINGS.values())
)
"""Company of all kinds and lengths."""


def no_gates(request: Request, prompt: PreparedPrompt) -> Iterable[Gate]:
    return ()


class Gathering(DefaultPolicy):
    """Begins nothing before all requests of a test have arrived."""

    def __init__(self, arrived: threading.Event) -> None:
        super().__init__()
        self._arrived = arrived

    def order(self, waiting: Sequence[Waiting]) -> Sequence[Waiting]:
        assert self._arrived.wait(60)
        return super().order(waiting)


def serve(
    make: MakeRunner,
    *requests: Request,
    lanes: int = 8,
    positions: int = 8 * WINDOW,
    drafting: Drafting | None = None,
    gates: Callable[[Request, PreparedPrompt], Iterable[Gate]] = no_gates,
    growth: int = 2048,
) -> tuple[list[Answer], dict[str, Any]]:
    """The answers of requests that run at the same time, and the engine's figures."""

    async def main() -> tuple[list[Answer], dict[str, Any]]:
        arrived = threading.Event()
        engine = LocalEngine(
            make(lanes, positions),
            prompts=ToyPrompts(TOKENIZER),
            tokenizer=TOKENIZER,
            chat=PlainFormat(),
            drafting=drafting,
            depth=Deepest(),
            gates=gates,
            policy=Gathering(arrived),
            settings=EngineSettings(growth=growth, decode_share=2.0),
            clock=ticking(),
        )
        async with running(engine):
            streams = [await engine.submit(each) for each in requests]
            arrived.set()
            sent = [[event async for event in stream] for stream in streams]
            return [fold(each) for each in sent], dict(engine.status().details)

    return asyncio.run(main())


def serial(make: MakeRunner, each: Request, **fields: Any) -> Answer:
    """The reference: alone, one token a round."""
    (answer,), _ = serve(make, msgspec.structs.replace(each, draft=False), **fields)
    return answer


def same(answer: Answer, reference: Answer) -> None:
    """Text, tokens with their log-probabilities, hashes, counts and reasons; bit for bit."""
    assert answer.token_sha == reference.token_sha
    assert answer.choices == reference.choices
    assert answer.usage.completion_tokens == reference.usage.completion_tokens


def tokens_of(answer: Answer) -> tuple[int, ...]:
    """The reply's ids, from its log-probabilities."""
    return tuple(token.id for token in answer.choices[0].tokens)


# ---- the matrix -------------------------------------------------------------------------------------------


@pytest.mark.requirement("T-134", "T-289", "Y-053", "T-102")
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_drafted_replies_equal_serial_ones(runner: MakeRunner, sampling: Sampling) -> None:
    """EX-01: right drafts, drafts that are wrong here and there, and nonsense change nothing but the speed."""
    each = request(sampling, logprobs=3)
    reference = serial(runner, each)
    replies = {PROMPT: tokens_of(reference)}
    assert len(replies[PROMPT]) == 40
    kept: list[int] = []
    for drafting in (Recalled(replies), Recalled(replies, 3), Recalled(replies, 7), Nonsense(), CopyDrafting(), None):
        (drafted,), details = serve(runner, each, drafting=drafting)
        same(drafted, reference)
        if isinstance(drafting, Recalled | Nonsense):
            assert drafted.usage.drafted_tokens > 0
        kept.append(drafted.usage.accepted_tokens)
        if kept == [39]:
            assert details["rounds_total"] == 1, "a reply that is drafted whole takes one round"
    assert kept[0] > kept[2] > kept[1] > kept[3]


@pytest.mark.parametrize("sampling", [SAMPLINGS["greedy"], SAMPLINGS["sampled"]], ids=["greedy", "sampled"])
def test_copies_of_repetitive_prompts_equal_serial_replies(runner: MakeRunner, sampling: Sampling) -> None:
    """EX-01: a loop, a text given twice, a list of near-equal rows; fresh and repeated, alone and with others."""
    text = tuple((place * place * 5 + 3) % 90 + 2 for place in range(40))
    rows = tuple(token for row in range(8) for token in (*text[:9], 2 + row))
    prompts = ((7, 8, 9) * 30, (*text, 5, *text, 6, *text[:9]), rows)
    requests = [request(sampling, prompt=prompt, tokens=60) for prompt in prompts]
    references = [serial(runner, each) for each in requests]
    together, _ = serve(runner, *requests, *OTHERS[:2], drafting=CopyDrafting())
    repeated, _ = serve(runner, *requests, *requests, drafting=CopyDrafting(), lanes=3)
    for place, reference in enumerate(references):
        for answer in (together[place], repeated[place], repeated[3 + place]):
            same(answer, reference)


@pytest.mark.requirement("T-291")
def test_replies_among_others_equal_solo_ones(runner: MakeRunner) -> None:
    """EX-04: whatever runs beside them, seeded or not, in whatever order they came."""
    references = [serial(runner, each) for each in OTHERS]
    for order in ((0, 1, 2, 3, 4), (4, 2, 0, 3, 1)):
        together, _ = serve(runner, *(OTHERS[place] for place in order))
        for place, answer in zip(order, together, strict=True):
            same(answer, references[place])


@pytest.mark.requirement("T-163")
def test_resumed_replies_equal_solo_ones(runner: MakeRunner) -> None:
    """Preempted for memory, replayed by the plan of their prompts, compared, not sent twice."""
    requests = [
        request(sampling, prompt=(*PROMPT, number), tokens=120)
        for number, sampling in enumerate(SAMPLINGS.values(), start=10)
    ]
    references = [serial(runner, each) for each in requests]
    together, details = serve(runner, *requests, positions=448, growth=1)
    assert details["preemptions_total"] > 0
    for answer, reference in zip(together, references, strict=True):
        same(answer, reference)


def test_drafts_company_and_short_memory_together_change_nothing(runner: MakeRunner) -> None:
    """All at once."""
    requests = [request(prompt=(*PROMPT, number), tokens=100, logprobs=2) for number in range(10, 15)]
    references = [serial(runner, each) for each in requests]
    replies = {(*PROMPT, number): tokens_of(answer) for number, answer in zip(range(10, 15), references, strict=True)}
    together, details = serve(runner, *requests, positions=384, growth=1, drafting=Recalled(replies, wrong_every=4))
    assert details["preemptions_total"] > 0
    for answer, reference in zip(together, references, strict=True):
        same(answer, reference)


@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_choices_equal_requests_with_their_keys(runner: MakeRunner, lanes: int) -> None:
    """Forked from one prompt, or from a kept one when lanes are few, each choice is the reply of its own key."""
    references = [
        serial(runner, request(Sampling(temperature=1.0, seed=choice_key(11, choice)))) for choice in range(4)
    ]
    (whole,), _ = serve(runner, request(Sampling(temperature=1.0, seed=11), choices=4), lanes=lanes)
    assert whole.token_sha == tuple(each.token_sha[0] for each in references)
    assert [choice.text for choice in whole.choices] == [each.choices[0].text for each in references]
    assert len(set(whole.token_sha)) == 4


def forced(request: Request, prompt: PreparedPrompt) -> Iterable[Gate]:
    """A forced opener, and only even tokens behind it."""
    return (ForcedRun([33, 35, 37, 34]), AllowedTokens(set(range(2, VOCABULARY, 2)), VOCABULARY))


@pytest.mark.requirement("T-197", "T-245")
def test_gates_hold_alike_drafted_and_serial(runner: MakeRunner) -> None:
    """A forced run and a mask, with drafts that know nothing of them."""
    each = request(logprobs=1)
    reference = serial(runner, each, gates=forced)
    free = tokens_of(serial(runner, each))
    for drafting in (None, Recalled({PROMPT: tokens_of(reference)}), Recalled({PROMPT: free}), Nonsense()):
        (answer,), details = serve(runner, each, drafting=drafting, gates=forced)
        same(answer, reference)
        assert details["rounds_total"] <= 36, "the forced run is one window"
    tokens = tokens_of(reference)
    assert tokens[:4] == (33, 35, 37, 34)
    assert all(token % 2 == 0 for token in tokens[4:])


@pytest.mark.requirement("T-136")
def test_the_stopping_token_is_the_same_drafted_and_serial(runner: MakeRunner) -> None:
    """Stop strings and end tokens inside a window end the reply at the token that completes them."""
    free = serial(runner, request(logprobs=0))
    tokens = tokens_of(free)
    place = next(place for place in range(8, 39) if tokens[place : place + 2] not in _pairs(tokens[:place]))
    stop = bytes(tokens[place : place + 2]).decode()
    each = request(stop=(stop,), logprobs=0)
    reference = serial(runner, each)
    assert reference.choices[0].reason == "stop"
    assert reference.usage.completion_tokens <= place + 2
    for wrong in (0, 5):
        (drafted,), _ = serve(runner, each, drafting=Recalled({PROMPT: tokens}, wrong))
        same(drafted, reference)


def _pairs(tokens: Sequence[int]) -> set[tuple[int, ...]]:
    return {tuple(tokens[place : place + 2]) for place in range(len(tokens))}


@pytest.mark.requirement("T-292", "T-095")
def test_the_same_request_again_gives_the_same_reply(runner: MakeRunner) -> None:
    """EX-03: on one engine, after other requests, and on a fresh one."""
    each = request(Sampling(temperature=1.0))

    async def main() -> list[Answer]:
        engine = LocalEngine(
            runner(2, 4 * WINDOW), prompts=ToyPrompts(TOKENIZER), tokenizer=TOKENIZER, chat=PlainFormat()
        )
        async with running(engine):
            answers = [fold(await events(engine, each))]
            for other in OTHERS[:2]:
                await events(engine, other)
                answers.append(fold(await events(engine, each)))
        return answers

    reference = serial(runner, each)
    for answer in asyncio.run(main()):
        same(answer, reference)


@pytest.mark.requirement("T-290")
def test_replies_from_a_kept_a_spilled_and_a_reloaded_prefix_equal_fresh_ones(
    runner: MakeRunner, tmp_path: Path
) -> None:
    """The same prompts on one engine again and again, with memory for few of them, and on one that was restarted."""
    requests = [
        request(sampling, prompt=(*PROMPT, number), tokens=30, logprobs=2)
        for number, sampling in enumerate(SAMPLINGS.values(), start=10)
    ]
    references = [serial(runner, each) for each in requests]
    settings = EngineSettings(spill_folder=tmp_path, spill_bytes=1 << 26)

    async def main() -> list[Answer]:
        engine = LocalEngine(
            runner(1, WINDOW),
            prompts=ToyPrompts(TOKENIZER),
            tokenizer=TOKENIZER,
            chat=PlainFormat(),
            drafting=CopyDrafting(),
            depth=Deepest(),
            settings=settings,
        )
        async with running(engine):
            return [fold(await events(engine, each)) for each in (*requests, *requests)]

    for restart in range(2):
        answers = asyncio.run(main())
        for place, answer in enumerate(answers):
            same(answer, references[place % len(requests)])
        assert all(answer.usage.cached_tokens for answer in answers[len(requests) if restart == 0 else 0 :])
