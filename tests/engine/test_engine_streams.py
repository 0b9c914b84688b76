"""Whole replies through the real engine and Runner: text, stops, limits, usage."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tensorfold.engine.drafts import Drafter
from tensorfold.engine.keys import token_sha
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import ContextLengthExceeded, InvalidRequest, RequestError, Unsupported
from tensorfold.ir import (
    Answer,
    Chat,
    Event,
    Finished,
    JsonObject,
    Limits,
    Message,
    Progress,
    Prompt,
    Queued,
    Request,
    Sampling,
    Started,
    Stopped,
    Text,
    TextDelta,
    TextPrompt,
    TokensPrompt,
    ToolCallDelta,
    ToolChoice,
    fold,
)
from tensorfold.testing.scripted import Script
from tensorfold.testing.toy_engine import answer, events, running, toy_engine
from tensorfold.testing.toy_parser import ThinkingFormat
from tensorfold.testing.toy_tokenizer import ToyTokenizer

WORDS = ("QRS", "T", "UV", "W", "X", "What", "?", "\n", "one", " two", "STOP", " x", " y", " z", "Hi", "more", "a", "b")
TOKENIZER = ToyTokenizer(words=WORDS, control=("<end>", "<other end>"))
END = TOKENIZER.ids("<end>")[0]
PROMPT = TextPrompt("a prompt of several chunks, so that it is not computed at once")
IDS = tuple(PROMPT.text.encode())


class Oracle:
    """Drafts a whole reply at once."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tuple(tokens)

    def begin(self, prompt: Sequence[int]) -> Drafter:
        return _Oracle(self._tokens)


class _Oracle:
    def __init__(self, tokens: tuple[int, ...]) -> None:
        self._tokens = tokens
        self._kept = 0

    def extend(self, token: int) -> None:
        self._kept += 1

    def propose(self, most: int) -> Sequence[int]:
        return self._tokens[self._kept : self._kept + most]


def request(*, limits: Limits | None = None, prompt: Prompt = PROMPT, draft: bool = True, **fields: object) -> Request:
    return Request(id="r", prompt=prompt, limits=limits or Limits(), draft=draft, **fields)  # type: ignore[arg-type]


def emit(
    *words: str, limits: Limits | None = None, prompt: Prompt = PROMPT, ids: tuple[int, ...] = IDS, chat: bool = False
) -> tuple[list[Event], Answer]:
    """The events of a reply of these tokens, drafted whole, and the answer of the serial one, which says the same."""
    tokens = TOKENIZER.ids(*words)

    async def main() -> tuple[list[Event], Answer]:
        engine = toy_engine(
            [Script(ids, tokens)],
            tokenizer=TOKENIZER,
            drafting=Oracle(tokens),
            chat=ThinkingFormat() if chat else None,
        )
        async with running(engine):
            drafted = await events(engine, request(limits=limits, prompt=prompt))
            serial = await answer(engine, request(limits=limits, prompt=prompt, draft=False))
        return drafted, serial

    drafted, serial = asyncio.run(main())
    folded = fold(drafted)
    assert folded.choices == serial.choices
    assert folded.token_sha == serial.token_sha
    assert folded.usage.completion_tokens == serial.usage.completion_tokens
    assert folded.usage.reasoning_tokens == serial.usage.reasoning_tokens
    return drafted, serial


def test_a_stream_begins_with_queued_and_ends_with_finished() -> None:
    """`Queued`, `Started`, deltas, one `Stopped` a choice, `Finished`, in this order."""
    sent, _ = emit("one", " two")
    assert sent[:2] == [Queued(len(IDS)), Started(0)]
    assert sent[-2] == Stopped(0, "end", ended_by="<end>")
    assert isinstance(sent[-1], Finished)
    assert all(isinstance(event, TextDelta) for event in sent[2:-2])


@pytest.mark.requirement("T-274", "T-137")
def test_usage_counts_the_prompt_and_every_token_with_the_stopping_one() -> None:
    """The end token is counted, and is part of `token_sha`."""
    _, whole = emit("one", " two")
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens) == (
        len(IDS),
        3,
        len(IDS) + 3,
    )
    assert whole.token_sha == (token_sha((*TOKENIZER.ids("one", " two"), END)),)


@pytest.mark.requirement("T-107")
def test_a_stop_string_over_several_tokens_leaves_nothing_of_itself() -> None:
    """ST-01: joined content is empty; with a stop string that only begins alike, all text comes out."""
    _, stopped = emit("QRS", "T", "UV", "W", "X", limits=Limits(stop=("QRSTUVW",)))
    assert (stopped.choices[0].text, stopped.choices[0].reason, stopped.choices[0].detail) == ("", "stop", "QRSTUVW")
    _, through = emit("QRS", "T", "UV", "W", "X", limits=Limits(stop=("QRSZ",)))
    assert (through.choices[0].text, through.choices[0].reason) == ("QRSTUVWX", "end")


def test_the_text_before_a_stop_string_is_streamed() -> None:
    """ST-02: nothing of the last text before the stop is lost."""
    sent, whole = emit("What", "?", "\n", limits=Limits(stop=("\n",)))
    assert "".join(event.text for event in sent if isinstance(event, TextDelta)) == whole.choices[0].text == "What?"


@pytest.mark.requirement("T-138")
def test_a_stop_string_in_a_window_past_the_limit_wins() -> None:
    """ST-05: the reply ends at the match as the serial one does, with its count, and no text behind it is returned."""
    _, whole = emit("one", " two", "STOP", " x", " y", " z", limits=Limits(max_tokens=5, stop=("STOP",)))
    assert (whole.choices[0].text, whole.choices[0].reason) == ("one two", "stop")
    assert whole.usage.completion_tokens == 3


@pytest.mark.requirement("T-090")
def test_an_explicit_limit_ends_the_reply() -> None:
    """Exactly so many tokens come, and the reason is the length."""
    _, whole = emit("one", " two", " x", limits=Limits(max_tokens=2))
    assert (whole.choices[0].text, whole.choices[0].reason) == ("one two", "length")
    assert whole.usage.completion_tokens == 2


@pytest.mark.requirement("T-106", "T-119", "T-139")
def test_ignoring_end_tokens_shows_them_and_keeps_limit_and_stop_strings() -> None:
    """The end token appears as its spelling, and a stop string behind it still holds."""
    _, whole = emit("one", "<end>", " x", "STOP", limits=Limits(ignore_eos=True, stop=("STOP",)))
    assert (whole.choices[0].text, whole.choices[0].reason) == ("one<end> x", "stop")
    _, cut = emit("one", "<end>", " x", limits=Limits(ignore_eos=True, max_tokens=3))
    assert (cut.choices[0].text, cut.choices[0].reason) == ("one<end> x", "length")


def test_a_reply_that_fills_the_window_says_so() -> None:
    """Without an explicit limit the window is the end."""

    async def main() -> Answer:
        engine = toy_engine([Script(IDS, TOKENIZER.ids("one") * 40)], tokenizer=TOKENIZER, window=len(IDS) + 7)
        async with running(engine):
            return await answer(engine, request())

    whole = asyncio.run(main())
    assert (whole.choices[0].reason, whole.usage.completion_tokens) == ("window", 7)


def test_end_tokens_are_masked_before_the_least_length() -> None:
    """`min_tokens` draws another token where the model wants to end, and lets it end afterwards."""

    async def main() -> Answer:
        script = Script(IDS, TOKENIZER.ids("one"))
        engine = toy_engine([script], tokenizer=TOKENIZER)
        async with running(engine):
            limits = Limits(min_tokens=2, max_tokens=9)
            return await answer(engine, request(limits=limits, sampling=Sampling(temperature=0.0)))

    whole = asyncio.run(main())
    # Behind the script's token the end token is masked, and greedy takes the lowest id of the others, which are equal.
    assert whole.choices[0].text.startswith("one\0")


def test_reasoning_tokens_never_exceed_completion_tokens() -> None:
    """US-02: an end token in the middle of an accepted window counts before anything behind it does."""
    chat = Chat((Message("user", (Text("hm<think>"),)),))
    ids = tuple(b"user: hm<think>\nassistant: ")
    sent, whole = emit("a", "b", "<end>", "X", "more", prompt=chat, ids=ids, chat=True)
    assert whole.usage.completion_tokens == 3
    assert 0 <= whole.usage.reasoning_tokens <= 3
    assert isinstance(sent[-1], Finished)


def test_reasoning_and_calls_are_split_by_the_family() -> None:
    """A conversation's reply goes through the family's parser; calls end it with `tool_calls` and have an id."""

    async def main() -> tuple[list[Event], list[Event]]:
        prompt = Chat((Message("user", (Text("x"),)),))
        ids = tuple(b"user: x\nassistant: ")
        reply = tuple(b"see<call>{}</call>")
        engine = toy_engine([Script(ids, reply)], chat=ThinkingFormat())
        async with running(engine):
            return await events(engine, request(prompt=prompt)), await events(engine, request(prompt=prompt))

    first, second = asyncio.run(main())
    whole = fold(first)
    assert whole.choices[0].text == "see"
    assert [(call.name, call.arguments) for call in whole.choices[0].calls] == [("f", "{}")]
    assert whole.choices[0].reason == "tool_calls"
    ids = [[event.id for event in sent if isinstance(event, ToolCallDelta) and event.id] for sent in (first, second)]
    assert ids[0] == ids[1] and len(ids[0]) == 1 and ids[0][0].startswith("call_")


def test_raw_prompts_are_not_parsed() -> None:
    """A completion's text is as the model wrote it, markers and all."""

    async def main() -> Answer:
        engine = toy_engine([Script(IDS, tuple(b"<call>{}"))], chat=ThinkingFormat())
        async with running(engine):
            return await answer(engine, request())

    assert asyncio.run(main()).choices[0].text == "<call>{}"


def test_progress_is_sent_for_every_chunk_when_asked_for() -> None:
    """Processed tokens grow by the chunk to the whole prompt."""

    async def main() -> list[Event]:
        engine = toy_engine([Script(IDS, TOKENIZER.ids("one"))], tokenizer=TOKENIZER, chunk=16)
        async with running(engine):
            stream = await engine.submit(request(progress=True))
            return [event async for event in stream]

    found = [event for event in asyncio.run(main()) if isinstance(event, Progress)]
    # A reader that is slower than the engine finds only the newest.
    assert found[-1].processed == found[-1].total == len(IDS)
    assert all(first.processed < second.processed for first, second in pairwise(found))


@pytest.mark.requirement("T-114", "T-117")
def test_log_probabilities_come_with_their_tokens() -> None:
    """LP-01: the bytes of all visible tokens join to the text; the drawn token is among its alternatives."""

    async def main() -> Answer:
        engine = toy_engine([Script(IDS, tuple("😊 é".encode()))], tokenizer=TOKENIZER)
        async with running(engine):
            return await answer(engine, request(logprobs=2))

    choice = asyncio.run(main()).choices[0]
    assert b"".join(token.data for token in choice.tokens).decode() == choice.text == "😊 é"
    for token in choice.tokens:
        assert token.logprob is not None and token.logprob <= 0
        assert len(token.alternatives) == 2
        assert (token.alternatives[0].id, token.alternatives[0].data) == (token.id, token.data)


# ---- refusals ---------------------------------------------------------------------------------------------


def refusal(bad: Request, **engine_fields: object) -> RequestError:
    """The error that `submit` raises; the next request is served."""

    async def main() -> RequestError:
        engine = toy_engine([Script(IDS, TOKENIZER.ids("one"))], tokenizer=TOKENIZER, **engine_fields)  # type: ignore[arg-type]
        async with running(engine):
            with pytest.raises(RequestError) as caught:
                await engine.submit(bad)
            assert (await answer(engine, request(limits=Limits(max_tokens=1)))).choices[0].text == "one"
            assert engine.status().waiting == 0
        return caught.value

    return asyncio.run(main())


@pytest.mark.requirement("T-126")
@pytest.mark.parametrize("ids", [(1, TOKENIZER.size), (2**70,)])
def test_a_prompt_id_past_the_vocabulary_is_refused(ids: tuple[int, ...]) -> None:
    """The error names the id and the range, and no other request is harmed."""
    error = refusal(request(prompt=TokensPrompt(ids)))
    assert isinstance(error, InvalidRequest)
    assert error.param == "prompt" and str(ids[-1]) in error.message and str(TOKENIZER.size - 1) in error.message


@pytest.mark.parametrize(
    ("bad", "param"),
    [
        (request(limits=Limits(stop_token_ids=(TOKENIZER.size,))), "stop_token_ids"),
        (request(sampling=Sampling(logit_bias=((TOKENIZER.size, 1.0),))), "logit_bias"),
        (request(prompt=TokensPrompt(())), "prompt"),
        (request(prompt=TextPrompt("")), "prompt"),
    ],
)
def test_what_the_model_cannot_take_is_refused_by_name(bad: Request, param: str) -> None:
    """Ids past the vocabulary in any field, and prompts without a token."""
    error = refusal(bad)
    assert isinstance(error, InvalidRequest) and error.param == param


@pytest.mark.parametrize(
    ("bad", "param"),
    [
        (request(grammar=JsonObject()), "response_format"),
        (request(tool_choice=ToolChoice("required")), "tool_choice"),
        (request(limits=Limits(thinking_budget=5)), "thinking_budget"),
    ],
)
def test_what_this_engine_does_not_do_is_refused_and_not_ignored(bad: Request, param: str) -> None:
    """A known field that cannot be honoured is a 400 by name."""
    error = refusal(bad)
    assert isinstance(error, Unsupported) and error.param == param


@pytest.mark.requirement("T-248", "T-252")
@pytest.mark.parametrize(
    ("prompt", "param"),
    [(PROMPT, "prompt"), (TokensPrompt(IDS), "prompt"), (Chat((Message("user", (Text("x" * 80),)),)), "messages")],
)
def test_a_request_past_the_window_is_refused_before_it_is_queued(prompt: Prompt, param: str) -> None:
    """CX-01: the refusal comes from `submit`, so that it can still be a 400."""
    error = refusal(request(prompt=prompt, limits=Limits(max_tokens=100)), window=130)
    assert isinstance(error, ContextLengthExceeded)
    assert (error.code, error.param) == ("context_length_exceeded", param)
    assert error.message.startswith("This server's maximum context length is 130 tokens")


@pytest.mark.requirement("T-267")
def test_the_configured_window_bounds_the_checkpoints() -> None:
    """A smaller context makes the reservation smaller, and the refusal names it."""
    error = refusal(request(limits=Limits(max_tokens=100)), window=4096, settings=EngineSettings(window=128))
    assert error.message.startswith("This server's maximum context length is 128 tokens")


@pytest.mark.requirement("T-263")
def test_the_memory_bounds_the_window() -> None:
    """A prompt and reply that the state memory can never hold are refused at once, not when it is full."""
    error = refusal(request(limits=Limits(max_tokens=100)), window=4096, positions=128)
    assert error.message.startswith("This server's maximum context length is 128 tokens")


def test_a_prompt_can_be_prepared_without_running_it() -> None:
    """`prepare` renders and tokenizes as `submit` does, and refuses the same prompts."""

    async def main() -> None:
        engine = toy_engine(tokenizer=TOKENIZER)
        async with running(engine):
            chat = Chat((Message("user", (Text("x"),)),))
            prepared = await engine.prepare(request(prompt=chat))
            assert (prepared.text, bytes(prepared.ids)) == ("user: x\nassistant: ", b"user: x\nassistant: ")
            with pytest.raises(InvalidRequest):
                await engine.prepare(request(prompt=TokensPrompt((TOKENIZER.size,))))

    asyncio.run(main())
