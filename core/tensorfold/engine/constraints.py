"""The gates that a request asks for: a budget for its reasoning, a call that it must make, a grammar that it must keep."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tensorfold.chat.continuing import continued_part
from tensorfold.chat.replies.offered import Offered
from tensorfold.contracts.chat import CallFrame, ChatFormat, MarkedFormat, ReplyMarks, Tokenizer
from tensorfold.contracts.engine import PreparedPrompt
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.gates import Gate
from tensorfold.engine.forcing import CallText, ForcedCall
from tensorfold.engine.spelling import Spelling
from tensorfold.engine.thinking import Place, PlaceTracker, ThinkingBudget
from tensorfold.errors import InvalidRequest, Unsupported
from tensorfold.ir import Chat, Request

__all__ = ["Constraints", "token_ids"]


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
    ) -> None:
        """`frame`: what is written around a call's name; None: this model makes no calls. `thinking_budget`: of
        requests that give none.
        """
        self._chat = chat if isinstance(chat, MarkedFormat) else None
        self._marks = ReplyMarks() if self._chat is None else self._chat.marks
        self._spelling = Spelling(tokenizer, token_ids(tokenizer, self._marks.in_text))
        self._ends = geometry.stop_ids | token_ids(tokenizer, self._marks.ends)
        self._vocabulary = geometry.vocabulary
        self._frame = frame
        self._budget = thinking_budget

    def __call__(self, request: Request, prompt: PreparedPrompt) -> Iterator[Gate]:
        """The gates, in the order in which they decide.

        Raises:
            RequestError: what the request asks for cannot be kept to.
        """
        required = request.tool_choice.mode == "required"
        if required and request.grammar is not None:
            raise InvalidRequest(
                "a reply that must be a tool call cannot also keep to a grammar: leave out tool_choice or the format",
                param="tool_choice",
            )
        if request.grammar is not None:
            raise Unsupported("structured output is not served", param="response_format")
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
        if required:
            yield ForcedCall(
                tracker,
                self._start(request, prompt, unasked=False),
                self._call_text(request),
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
