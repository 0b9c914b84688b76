"""The gates that a request asks for: a budget for its reasoning, a call that it must make, a grammar that it must keep."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Protocol

from tensorfold.chat.continuing import continued_part
from tensorfold.chat.replies.offered import Offered
from tensorfold.contracts.chat import CallFrame, ChatFormat, MarkedFormat, ReplyMarks, Tokenizer
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.gates import Gate
from tensorfold.engine.forcing import CallText, ForcedCall
from tensorfold.engine.grammar import CompiledGrammar, GrammarGate
from tensorfold.engine.grammars import Grammars
from tensorfold.engine.spelling import Spelling
from tensorfold.engine.thinking import Place, PlaceTracker, ThinkingBudget
from tensorfold.errors import InvalidRequest, RequestError, Unsupported
from tensorfold.ir import Chat, Grammar, Request

__all__ = ["Constraints", "GrammarSource", "token_ids"]


class GrammarSource(Protocol):
    """Who compiles grammars."""

    def compiled(self, grammar: Grammar) -> CompiledGrammar:
        """The grammar, compiled; takes a while the first time.

        Raises:
            RequestError: it cannot be.
        """
        ...


def token_ids(tokenizer: Tokenizer, spellings: frozenset[str]) -> frozenset[int]:
    """The tokens that are spelled so, as far as there are any."""
    found = (tokenizer.token_id(spelling) for spelling in spellings)
    return frozenset(token for token in found if token is not None)


class Constraints:
    """A `GateMaker`. Runs on the front pool's threads."""

    def __init__(
        self,
        *,
        tokenizer: Tokenizer,
        chat: ChatFormat,
        geometry: Geometry,
        frame: CallFrame | None,
        thinking_budget: int | None = None,
        grammars: GrammarSource | None = None,
    ) -> None:
        """`frame`: what is written around a call's name; None: this model makes no calls. `thinking_budget`: of
        requests that give none. `grammars`: who compiles them; None: xgrammar, where it is installed.
        """
        self._chat = chat if isinstance(chat, MarkedFormat) else None
        self._marks = ReplyMarks() if self._chat is None else self._chat.marks
        self._spelling = Spelling(tokenizer, token_ids(tokenizer, self._marks.in_text))
        self._ends = geometry.stop_ids | token_ids(tokenizer, self._marks.ends)
        self._vocabulary = geometry.vocabulary
        self._frame = frame
        self._budget = thinking_budget
        self._grammars: GrammarSource = (
            Grammars(tokenizer, geometry.vocabulary, self._ends) if grammars is None else grammars
        )

    def compile(self, request: Request) -> None:
        """Do what takes long of `__call__`, and keep it.

        Raises:
            RequestError: what the request asks for cannot be kept to.
        """
        self._check(request)
        if request.grammar is not None:
            self._compiled(request, request.grammar)

    def _compiled(self, request: Request, grammar: Grammar) -> CompiledGrammar:
        """
        Raises:
            RequestError: it cannot be kept to; names the field that asked for it.
        """
        try:
            return self._grammars.compiled(grammar)
        except RequestError as error:
            error.param = request.grammar_field
            raise

    def __call__(self, request: Request, prompt: PreparedPrompt) -> Iterator[Gate]:
        """The gates, in the order in which they decide.

        Raises:
            RequestError: what the request asks for cannot be kept to.
        """
        self._check(request)
        tracker = self._tracker(request)
        thinking = self._marks.thinking if isinstance(request.prompt, Chat) else None
        budget = request.limits.thinking_budget or self._budget
        if budget and thinking is not None:
            close = f"\n{thinking.end}" + ("" if request.grammar is not None else "\n\n")
            yield ThinkingBudget(
                tracker,
                self._start(request, prompt, unasked=True),
                budget,
                self._spelling.encode(close),
                self._spelling.data,
                self._ends,
            )
        if request.tool_choice.mode == "required":
            yield ForcedCall(
                tracker,
                self._start(request, prompt, unasked=False),
                self._call_text(request),
                data=self._spelling.data,
                encode=self._spelling.encode,
                ends=self._ends,
                vocabulary=self._vocabulary,
            )

        if request.grammar is not None:
            grammar = self._compiled(request, request.grammar)
            yield self._bound(grammar, tracker, self._start(request, prompt, unasked=False))

    def _check(self, request: Request) -> None:
        """
        Raises:
            RequestError: the request asks for what cannot be kept to at once.
        """
        if request.grammar is None:
            return
        other = next(
            (
                name
                for name, given in (
                    ("tool_choice", request.tool_choice.mode == "required"),
                    ("ignore_eos", request.limits.ignore_eos),
                    ("min_tokens", request.limits.min_tokens > 0),
                )
                if given
            ),
            None,
        )
        if other is not None:
            raise InvalidRequest(
                f"a reply that keeps to a grammar ends where that does, and calls nothing: leave out {other}, or the form"
                " of the reply",
                param=other,
            )

    def _bound(self, grammar: CompiledGrammar, tracker: PlaceTracker, start: Place) -> GrammarGate:
        marks = self._marks.thinking
        return GrammarGate(
            tracker,
            start,
            grammar,
            opening=() if marks is None else self._spelling.encode(marks.start),
            closing="" if marks is None else marks.end,
            data=self._spelling.data,
            encode=self._spelling.encode,
            ends=self._ends,
            vocabulary=self._vocabulary,
        )

    def _tracker(self, request: Request) -> PlaceTracker:
        marks, chat = self._marks, self._chat
        if chat is None or marks.call is None or not Offered.by(request):
            return PlaceTracker(marks.thinking)
        return PlaceTracker(marks.thinking, marks.call, partial(chat.begins_call, request))

    def _start(self, request: Request, prompt: PreparedPrompt, *, unasked: bool) -> Place:
        """Where the reply begins; `unasked`: the model may open its reasoning also where it is not asked to think."""
        marks = self._marks.thinking
        if marks is None or not isinstance(request.prompt, Chat):
            return Place("answer")
        continued = continued_part(request.prompt)
        if continued is not None:
            return Place("thinking" if continued == "thinking" else "answer")
        text = prompt.text or ""
        if marks.opened_by(text):
            return Place("thinking")
        thinks = self._chat is not None and self._chat.thinks if prompt.thinking is None else prompt.thinking
        return Place("begin" if unasked or (thinks and not marks.closed_by(text)) else "answer")

    def _call_text(self, request: Request) -> CallText:
        """What is written of a call up to its arguments.

        Raises:
            Unsupported: this model makes no calls.
            InvalidRequest: there is nothing to call.
        """
        offered = Offered.by(request)
        if not offered:
            raise InvalidRequest("tool_choice demands a call, and no such function is offered", param="tool_choice")
        frame = self._frame
        if frame is None:
            raise Unsupported("this model's chat template has no tool calls", param="tool_choice")
        texts = (frame.arguments.encode(), frame.nothing.encode())
        names = {name.encode(): texts if offered.takes(name) else texts[::-1] for name in offered.names}
        return CallText(frame.before.encode(), names)
