"""From a request to a job, and every refusal that needs the model: window, vocabulary, capability."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias, runtime_checkable

from tensorfold.chat.plain import PlainParser
from tensorfold.contracts.chat import ChatFormat, MarkedFormat, ReplyMarks, ReplyParser, Tokenizer
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.gates import Gate
from tensorfold.engine.constraints import token_ids
from tensorfold.engine.drafts import Drafting
from tensorfold.engine.gates import GateSet, MinTokens
from tensorfold.engine.job import Job
from tensorfold.engine.keys import sampling_key
from tensorfold.engine.limits import reply_limit
from tensorfold.engine.plan import chunk_plan
from tensorfold.engine.rules import sampling_rule
from tensorfold.engine.settings import EngineSettings
from tensorfold.errors import InvalidRequest, Unsupported
from tensorfold.ir import Chat, Finished, LabelScore, Limits, Prompt, Request, Score, Scored, SpellingScore

__all__ = ["Admission", "CompilesGates", "GateMaker", "PromptSource", "no_gates"]

TAIL = 1024
"""Characters of the rendered prompt that a reply parser is shown."""

GateMaker: TypeAlias = Callable[[Request, PreparedPrompt], Iterable[Gate]]
"""Makes the gates that a request asks for, in their order."""


@runtime_checkable
class CompilesGates(Protocol):
    """A maker of gates some of which take long to make."""

    def compile(self, request: Request) -> None:
        """Make what takes long, and keep it for the call that follows; on threads of its own.

        Raises:
            RequestError: what the request asks for cannot be kept to.
        """
        ...


def no_gates(request: Request, prompt: PreparedPrompt) -> Iterable[Gate]:
    """What needs a gate is refused, never ignored.

    Raises:
        Unsupported: a request asks for one.
    """
    if request.grammar is not None:
        raise Unsupported("structured output is not served", param="response_format")
    if request.tool_choice.mode == "required":
        raise Unsupported("a tool choice that forces a call is not served", param="tool_choice")
    if request.limits.thinking_budget:
        raise Unsupported("a thinking budget is not served", param="thinking_budget")
    return ()


class PromptSource(Protocol):
    """Renders and tokenizes. Used by several threads."""

    def prepare(self, prompt: Prompt) -> PreparedPrompt:
        """The prompt as the engine will run it.

        Raises:
            RequestError: the template refuses it.
        """
        ...


class Admission:
    """Checks and prepares requests; runs on the front pool's threads, and keeps nothing."""

    def __init__(
        self,
        *,
        prompts: PromptSource,
        tokenizer: Tokenizer,
        chat: ChatFormat,
        geometry: Geometry,
        window: int,
        shortage: str = "",
        chunk: int,
        settings: EngineSettings,
        drafting: Drafting | None,
        gates: GateMaker,
    ) -> None:
        """`window` is the effective one; `shortage` is said to who does not fit it; `chunk` is the chunk plan's step."""
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._chat = chat
        marks = chat.marks if isinstance(chat, MarkedFormat) else ReplyMarks()
        self._in_text = token_ids(tokenizer, marks.in_text)
        self._ends = geometry.stop_ids | token_ids(tokenizer, marks.ends)
        self._geometry = geometry
        self._window = window
        self._shortage = shortage
        self._chunk = chunk
        self._settings = settings
        self._drafting = drafting
        self._gates = gates

    def prepare(self, request: Request) -> PreparedPrompt:
        """The prompt, every id of which exists.

        Raises:
            RequestError: the template refuses it, or it holds an id past the vocabulary, or no token at all.
        """
        prepared = self._prompts.prepare(request.prompt)
        self._check_ids(prepared.ids, "the prompt", _prompt_param(request))
        if not prepared.ids:
            raise InvalidRequest(
                "the prompt has no tokens, and a reply needs one to follow", param=_prompt_param(request)
            )
        return prepared

    def job(self, request: Request) -> Job:
        """The request as the engine runs it.

        Raises:
            RequestError: it can never be run here.
        """
        limits = request.limits
        self._check_ids(limits.stop_token_ids, "stop_token_ids", "stop_token_ids")
        self._check_ids((token for token, _ in request.sampling.logit_bias), "logit_bias", "logit_bias")
        prepared = self.prepare(request)
        chat = isinstance(request.prompt, Chat)
        every_end = self._ends if chat else self._geometry.stop_ids
        ends = frozenset[int]() if limits.ignore_eos else every_end
        settings = self._settings
        return Job(
            request=request,
            ids=prepared.ids,
            chunks=chunk_plan(len(prepared.ids), prepared.markers, self._chunk),
            markers=prepared.markers,
            text=prepared.text,
            vocabulary=self._geometry.vocabulary,
            rule=sampling_rule(request.sampling, settings.sampling, self._geometry.sampling),
            key=sampling_key(request.sampling.seed, prepared.ids, settings.seed_salt),
            limit=reply_limit(
                limits,
                prompt=len(prepared.ids),
                window=self._window,
                default=settings.max_tokens,
                param=_prompt_param(request),
                shortage=self._shortage,
            ),
            ends=ends,
            stop_ids=frozenset(limits.stop_token_ids),
            spelled=(self._in_text if chat else frozenset[int]()) | (every_end - ends),
            gates=GateSet((*self._gates(request, prepared), *self._least(request, ends))),
            tokenizer=self._tokenizer,
            parser=self._parser(request, prepared),
            drafting=self._drafting if request.draft else None,
        )

    def score_job(self, score: Score) -> Job:
        """A request for scores, as the engine runs it; equal spellings are scored once.

        Raises:
            RequestError: it can never be run here.
        """
        spellings = [self._spelled(each) for label in score.labels for each in label.spellings]
        for each in spellings:
            self._check_ids(each, "a label", "labels")
        request = Request(
            id=score.id,
            prompt=score.prompt,
            model=score.model,
            limits=Limits(max_tokens=max(map(len, spellings))),
            draft=False,
            priority=score.priority,
            principal=score.principal,
            deadline=score.deadline,
        )
        job = self.job(request)
        chunks = chunk_plan(len(job.ids), job.markers, self._chunk, score.branch)
        return replace(job, chunks=chunks, scored=tuple(dict.fromkeys(spellings)))

    def answer(
        self,
        score: Score,
        logprobs: Mapping[tuple[int, ...], Sequence[float]],
        top: int | None,
        finished: Finished,
    ) -> Scored:
        """The answer, from the log-probabilities of each continuation's tokens and the likeliest token."""
        labels = [
            LabelScore(tuple(SpellingScore(ids, tuple(logprobs[ids])) for ids in map(self._spelled, label.spellings)))
            for label in score.labels
        ]
        return Scored(tuple(labels), finished.usage, finished.timings, top)

    def _spelled(self, spelling: str | tuple[int, ...]) -> tuple[int, ...]:
        if isinstance(spelling, tuple):
            return spelling
        return tuple(self._tokenizer.encode(spelling, add_special_tokens=False, parse_special=False))

    def _least(self, request: Request, ends: frozenset[int]) -> Iterable[Gate]:
        """The gate that keeps end tokens back, if any is wanted."""
        masked = {token for token in (*ends, *request.limits.stop_token_ids) if token < self._geometry.vocabulary}
        if masked and request.limits.min_tokens:
            yield MinTokens(masked, request.limits.min_tokens, self._geometry.vocabulary)

    def _parser(self, request: Request, prepared: PreparedPrompt) -> Callable[[], ReplyParser]:
        if not isinstance(request.prompt, Chat):
            return PlainParser
        tail = (prepared.text or "")[-TAIL:]
        return lambda: self._chat.parser(request, tail)

    def _check_ids(self, ids: Iterable[int], what: str, param: str) -> None:
        vocabulary = self._geometry.vocabulary
        unknown = next((token for token in ids if not 0 <= token < vocabulary), None)
        if unknown is not None:
            raise InvalidRequest(
                f"{what} holds token id {unknown}, and this model's ids go from 0 to {vocabulary - 1}", param=param
            )


def _prompt_param(request: Request) -> str:
    """The field that holds the prompt."""
    return "messages" if isinstance(request.prompt, Chat) else "prompt"
