"""The request IR: what every dialect decodes to, and what the engine answers with. Frozen values, serializable.

Shape is checked in the dialect's wire types, meaning here in `__post_init__` (an impossible `Request` cannot
exist, whoever built it), feasibility (window, vocabulary) at admission in the engine.

`fold` is the only way to a non-streamed answer, so that a streamed and a whole reply cannot drift apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from tensorfold.errors import GenerationFailed, InvalidRequest, RequestError

__all__ = [
    "JSON",
    "Alternative",
    "Answer",
    "Chat",
    "Choice",
    "Ebnf",
    "Event",
    "Failed",
    "Finished",
    "Grammar",
    "Image",
    "JsonObject",
    "JsonSchema",
    "Label",
    "LabelScore",
    "Limits",
    "Message",
    "Part",
    "Progress",
    "Prompt",
    "Queued",
    "Regex",
    "Request",
    "Role",
    "Sampling",
    "Score",
    "Scored",
    "SpellingScore",
    "Started",
    "StopReason",
    "Stopped",
    "Text",
    "TextDelta",
    "TextPrompt",
    "Thinking",
    "ThinkingDelta",
    "Timings",
    "TokenInfo",
    "TokensPrompt",
    "Tool",
    "ToolCall",
    "ToolCallDelta",
    "ToolChoice",
    "ToolResult",
    "TraceContext",
    "Usage",
    "fold",
]

if TYPE_CHECKING:
    JSON: TypeAlias = bool | int | float | str | list["JSON"] | dict[str, "JSON"] | None
    """A parsed JSON value."""
else:
    # msgspec cannot resolve an alias that refers to itself; any JSON value is what it decodes to.
    JSON = Any

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]

MAX_CHOICES = 128
"""The most choices that one request may ask for."""
MAX_ALTERNATIVES = 20
"""The most alternatives a token that logprobs may ask for."""


# ---- messages ---------------------------------------------------------------------------------------------


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Plain text."""

    text: str


class Thinking(msgspec.Struct, frozen=True, tag="thinking"):
    """An earlier turn's reasoning."""

    text: str


class Image(msgspec.Struct, frozen=True, tag="image"):
    """A picture, not yet fetched or decoded."""

    url: str
    """A data URL or an http(s) URL."""
    detail: str | None = None
    """The client's wish for resolution (`low`, `high`, `auto`), if any."""


class ToolCall(msgspec.Struct, frozen=True, tag="tool_call"):
    """A call that the assistant made in an earlier turn."""

    id: str
    """The client's id of the call; may be empty in histories that have none."""
    name: str
    arguments: str
    """The text that the model wrote, which need not parse; templates get a mapping."""


class ToolResult(msgspec.Struct, frozen=True, tag="tool_result"):
    """What a call gave back."""

    call_id: str
    """The id of the call; may be empty in histories that have none."""
    parts: tuple[Text | Image, ...]
    is_error: bool = False


Part: TypeAlias = Text | Thinking | Image | ToolCall | ToolResult


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Role
    parts: tuple[Part, ...]
    name: str | None = None
    """The participant's name, where the API has one."""


class Tool(msgspec.Struct, frozen=True):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, JSON] | None = None
    """The JSON schema of the arguments; None: no arguments declared."""
    strict: bool = False


# ---- prompts ----------------------------------------------------------------------------------------------


class Chat(msgspec.Struct, frozen=True, tag="chat"):
    """A conversation, to be rendered through the checkpoint's template."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    template_kwargs: dict[str, JSON] = {}
    """Extra variables for the template (`enable_thinking`, ...)."""
    reasoning_effort: str | None = None
    """none, minimal, low, medium, high, xhigh or max; None: the server's or the template's default."""
    continue_final_message: bool = False
    """Continue the last (assistant) message instead of beginning a new one."""
    continued_part: Literal["thinking", "text"] | None = None
    """Which part of it is continued; None: its reasoning if it has some and no text, else its text."""
    add_generation_prompt: bool = True
    """Begin the answer; false only shows how the conversation so far reads."""

    def __post_init__(self) -> None:
        if not self.messages:
            raise InvalidRequest("messages must hold at least one message", param="messages")


class TextPrompt(msgspec.Struct, frozen=True, tag="text_prompt"):
    """Raw text, without a template."""

    text: str
    add_special_tokens: bool = False
    """Whether the tokenizer adds its own (BOS, ...)."""


class TokensPrompt(msgspec.Struct, frozen=True, tag="tokens_prompt"):
    """Token ids, run as given."""

    ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(token < 0 for token in self.ids):
            raise InvalidRequest("prompt holds a negative token id", param="prompt")


Prompt: TypeAlias = Chat | TextPrompt | TokensPrompt


# ---- how to reply -----------------------------------------------------------------------------------------


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are drawn. None everywhere: the server's default, then the checkpoint's."""

    temperature: float | None = None
    """0 is greedy."""
    top_p: float | None = None
    """The smallest nucleus of at least this probability; 1 is off."""
    top_k: int | None = None
    """How many of the likeliest stay; 0 is off."""
    min_p: float | None = None
    """What stays must be at least this share of the likeliest; filters last; 0 is off."""
    seed: int | None = None
    """The sampling key; None: derived from the prompt's ids."""
    presence_penalty: float | None = None
    """Taken off every logit whose token has occurred."""
    frequency_penalty: float | None = None
    """Taken off as often as the token has occurred."""
    repetition_penalty: float | None = None
    """Divides positive and multiplies negative logits of tokens that have occurred; 1 is off."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, added to its logit), ids distinct."""

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            value: float | None = getattr(self, name)
            if value is None:
                continue
            if not math.isfinite(value):
                raise InvalidRequest(f"{name} is {value}, and must be finite", param=name)
            if not low <= value <= high:
                span = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
                raise InvalidRequest(f"{name} is {value}, and must be {span}", param=name)
        for token, bias in self.logit_bias:
            if token < 0 or not math.isfinite(bias) or abs(bias) > 100:
                raise InvalidRequest(
                    f"logit_bias of token {token} is {bias}: ids are not negative, biases from -100 to 100",
                    param="logit_bias",
                )


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("temperature", 0.0, 100.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -100.0, 100.0),
    ("frequency_penalty", -100.0, 100.0),
    ("repetition_penalty", 1e-3, 1e3),
)


class Limits(msgspec.Struct, frozen=True):
    """Where a reply ends."""

    max_tokens: int | None = None
    """The explicit reply limit; None: the server's default, cut to the room left."""
    min_tokens: int = 0
    """End tokens are masked before this many tokens; stop strings are not."""
    stop: tuple[str, ...] = ()
    """The reply stops at any of these and leaves the matched text out."""
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    """Turn off the model's own end tokens; the limit and stop strings still hold."""
    thinking_budget: int | None = None
    """The most tokens inside reasoning; None: the server's default."""
    overflow: Literal["refuse", "cut"] = "refuse"
    """What happens to an explicit limit past the window: a refusal, or it is cut to the room left."""
    include_stop_str: bool = False
    """Keep the matched stop text in the reply."""
    stop_after_output: bool = False
    """End at the first text that the reply produces; never within a character."""
    loop_detect: bool | None = None
    """Stop a reply that only repeats itself; None: unless `ignore_eos` is set."""
    loop_detect_error: bool = False
    """Fail the request when that happens, instead of ending the reply."""

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequest(f"max_tokens is {self.max_tokens}, and must be at least 1", param="max_tokens")
        if self.min_tokens < 0:
            raise InvalidRequest(f"min_tokens is {self.min_tokens}, and must not be negative", param="min_tokens")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens is {self.min_tokens}, more than max_tokens, {self.max_tokens}", param="min_tokens"
            )
        if any(not text for text in self.stop):
            raise InvalidRequest("stop holds an empty string, which would stop every reply at once", param="stop")
        if self.thinking_budget is not None and self.thinking_budget < 0:
            raise InvalidRequest("thinking_budget must not be negative", param="thinking_budget")


class JsonSchema(msgspec.Struct, frozen=True, tag="json_schema"):
    """The reply is a JSON value of this schema."""

    schema: dict[str, JSON] | bool


class JsonObject(msgspec.Struct, frozen=True, tag="json_object"):
    """The reply is any JSON object."""


class Regex(msgspec.Struct, frozen=True, tag="regex"):
    """The whole reply matches this expression."""

    pattern: str


class Ebnf(msgspec.Struct, frozen=True, tag="ebnf"):
    """The whole reply is derived from rule `root`."""

    text: str


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """The reply is one of these texts."""

    texts: tuple[str, ...]


Grammar: TypeAlias = JsonSchema | JsonObject | Regex | Ebnf | Choice


class ToolChoice(msgspec.Struct, frozen=True):
    """Whether and what the model must call."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    """With `required`: this function and no other."""
    parallel: bool = True
    """False: at most one call."""


class TraceContext(msgspec.Struct, frozen=True):
    """The caller's place in a distributed trace, in the headers of W3C's Trace Context as they came: unchecked."""

    parent: str
    """`traceparent`."""
    state: str = ""
    """`tracestate`."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request for one prompt, whatever API it came through."""

    id: str
    prompt: Prompt
    model: str = ""
    """The name that the client asked for; empty: none."""
    choices: int = 1
    """How many independent replies; choice 0 has the plain sampling key."""
    sampling: Sampling = Sampling()
    limits: Limits = Limits()
    grammar: Grammar | None = None
    tool_choice: ToolChoice = ToolChoice()
    draft: bool = True
    """False selects the serial reference; the reply is the same."""
    priority: Literal["foreground", "background"] = "foreground"
    logprobs: int | None = None
    """How many alternatives a token; 0: the token's own only; None: no logprobs."""
    echo: bool = False
    """Begin the reply with the prompt's own text."""
    progress: bool = False
    """Send `Progress` events during prefill."""
    counted: bool = False
    """Each delta of the reply tells how many tokens there are up to it."""
    principal: str | None = None
    """The label of the key that asked; never the key."""
    trace: TraceContext | None = None
    """For observers; None: the caller named none."""
    deadline: float | None = None
    """Seconds since the epoch after which nobody waits for the reply; None: no deadline."""

    def __post_init__(self) -> None:
        if not 1 <= self.choices <= MAX_CHOICES:
            raise InvalidRequest(f"n is {self.choices}, and must be between 1 and {MAX_CHOICES}", param="n")
        if self.logprobs is not None and not 0 <= self.logprobs <= MAX_ALTERNATIVES:
            raise InvalidRequest(
                f"{self.logprobs} logprobs a token, and at most {MAX_ALTERNATIVES} are served", param="logprobs"
            )


# ---- scoring ----------------------------------------------------------------------------------------------

MAX_SPELLINGS = 1024
"""The most continuations that one request may have scored."""


class Label(msgspec.Struct, frozen=True):
    """One answer that is weighed against others."""

    spellings: tuple[str | tuple[int, ...], ...]
    """Ways in which it may continue the prompt, as text or as token ids; its probability is theirs together."""

    def __post_init__(self) -> None:
        if not self.spellings or not all(self.spellings):
            raise InvalidRequest("a label must have at least one spelling, and none may be empty", param="labels")


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Asks how likely each label is to come next. No text is made."""

    id: str
    prompt: Prompt
    labels: tuple[Label, ...]
    model: str = ""
    """The name that the client asked for; empty: none."""
    priority: Literal["foreground", "background"] = "foreground"
    principal: str | None = None
    """The label of the key that asked; never the key."""
    deadline: float | None = None
    """Seconds since the epoch after which nobody waits for the answer; None: no deadline."""

    def __post_init__(self) -> None:
        count = sum(len(label.spellings) for label in self.labels)
        if not 1 <= count <= MAX_SPELLINGS:
            raise InvalidRequest(
                f"{count} spellings of labels, and there must be from 1 to {MAX_SPELLINGS}", param="labels"
            )


class SpellingScore(msgspec.Struct, frozen=True):
    """How likely one continuation is."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of each token, given the prompt and the tokens before it: of the raw distribution at temperature 1."""

    @property
    def logprob(self) -> float:
        """Of the whole continuation."""
        return math.fsum(self.logprobs)


class LabelScore(msgspec.Struct, frozen=True):
    """How likely one label is."""

    spellings: tuple[SpellingScore, ...]

    @property
    def logprob(self) -> float:
        """The log of its spellings' probabilities together; spellings that are equal count once."""
        logs = list({each.ids: each.logprob for each in self.spellings}.values())
        largest = max(logs)
        if largest == -math.inf:
            return largest
        return largest + math.log(math.fsum(math.exp(each - largest) for each in logs))


class Scored(msgspec.Struct, frozen=True):
    """The answer to `Score`, label by label."""

    labels: tuple[LabelScore, ...]
    usage: Usage
    timings: Timings
    top: int | None = None
    """The likeliest next token of the whole vocabulary, the lower id of equals; None: the engine does not tell."""


# ---- events -----------------------------------------------------------------------------------------------


class Alternative(msgspec.Struct, frozen=True, gc=False):
    """A token that could have stood there."""

    id: int
    data: bytes
    logprob: float


class TokenInfo(msgspec.Struct, frozen=True):
    """One token of a reply (or of an echoed prompt) with its log-probability."""

    id: int
    data: bytes
    """The token's own bytes, which may be part of a character."""
    logprob: float | None
    """Of the raw distribution at temperature 1, before gates, penalties and filters; None: the first prompt token."""
    alternatives: tuple[Alternative, ...] = ()
    """The likeliest tokens, most likely first."""


class Queued(msgspec.Struct, frozen=True, tag="queued"):
    """All checks and the queue's bound have passed; nothing computed yet. Always the first event."""

    prompt_tokens: int


class Started(msgspec.Struct, frozen=True, tag="started"):
    """The prompt begins to be computed."""

    cached_tokens: int
    """Prompt tokens whose state was kept from earlier requests."""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """So much of the prompt is computed."""

    processed: int
    total: int
    cached: int
    seconds: float


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """More of the answer's text; never part of a character."""

    choice: int
    text: str
    tokens: tuple[TokenInfo, ...] = ()
    """The tokens that this text comes from, when logprobs were asked for."""
    count: int | None = None
    """The choice's tokens up to here, for requests that are counted; None: not told."""


class ThinkingDelta(msgspec.Struct, frozen=True, tag="thinking"):
    """More of the reasoning's text."""

    choice: int
    text: str
    tokens: tuple[TokenInfo, ...] = ()
    count: int | None = None
    """The choice's tokens up to here, for requests that are counted; None: not told."""


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call"):
    """More of a call: the first delta of a call has its id and name, the later ones arguments alone."""

    choice: int
    index: int
    """Which call of the choice, from 0."""
    id: str | None
    name: str | None
    arguments: str
    count: int | None = None
    """The choice's tokens up to here, for requests that are counted; None: not told."""


StopReason: TypeAlias = Literal["end", "stop", "length", "window", "tool_calls", "repetition", "abort"]
"""End of turn; a stop string or stop id; the reply limit; the window is full; calls were made; a loop; cancelled."""


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """A choice has ended. Nothing of this choice follows."""

    choice: int
    reason: StopReason
    detail: str | None = None
    """With `stop`: the stop string that matched."""
    ended_by: str | None = None
    """The end token, stop token or stop string that ended it, as it is spelled; None: nothing in the text."""


class Usage(msgspec.Struct, frozen=True):
    """Tokens counted."""

    prompt_tokens: int
    completion_tokens: int
    """Over all choices, the stopping token included."""
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    drafted_tokens: int = 0
    """Draft tokens that were verified."""
    accepted_tokens: int = 0
    """Of those, the ones kept."""

    @property
    def total_tokens(self) -> int:
        """Prompt and completion."""
        return self.prompt_tokens + self.completion_tokens


class Timings(msgspec.Struct, frozen=True):
    """Where the time went, in seconds."""

    queued: float = 0.0
    prefill: float = 0.0
    """From the first chunk to the first token."""
    decode: float = 0.0
    """From the first token to the end."""


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """All choices have ended. The last event of a stream that went well."""

    usage: Usage
    timings: Timings
    token_sha: tuple[str, ...]
    """For each choice, SHA-256 over its token ids, so that anyone can compare two replies."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The request failed after it was queued. The last event of a stream that did not go well."""

    message: str
    status: int = 500
    error_type: str = "server_error"
    code: str | None = None
    param: str | None = None

    @staticmethod
    def of(error: RequestError) -> Failed:
        """The event that tells of this error."""
        return Failed(error.message, error.status, error.type, error.code, error.param)

    def error(self) -> RequestError:
        """The exception that this event tells of."""
        error = GenerationFailed(self.message, param=self.param, code=self.code)
        error.status, error.type = self.status, self.error_type
        return error


Event: TypeAlias = Queued | Started | Progress | TextDelta | ThinkingDelta | ToolCallDelta | Stopped | Finished | Failed


# ---- the whole answer -------------------------------------------------------------------------------------


class ChoiceAnswer(msgspec.Struct, frozen=True):
    """One whole reply."""

    text: str
    thinking: str
    calls: tuple[ToolCall, ...]
    reason: StopReason
    detail: str | None = None
    ended_by: str | None = None
    """The end token, stop token or stop string that ended it, as it is spelled."""
    tokens: tuple[TokenInfo, ...] = ()
    """Those of the text."""
    thinking_tokens: tuple[TokenInfo, ...] = ()


class Answer(msgspec.Struct, frozen=True):
    """A whole answer, folded from its events."""

    choices: tuple[ChoiceAnswer, ...]
    usage: Usage
    timings: Timings
    token_sha: tuple[str, ...]


class _Draft:
    """A choice while it is folded."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.tokens: list[TokenInfo] = []
        self.thinking_tokens: list[TokenInfo] = []
        self.calls: dict[int, tuple[str, str, list[str]]] = {}
        self.stopped: Stopped | None = None

    def call(self, delta: ToolCallDelta) -> None:
        _, _, arguments = self.calls.setdefault(delta.index, (delta.id or "", delta.name or "", []))
        arguments.append(delta.arguments)

    def answer(self) -> ChoiceAnswer:
        if self.stopped is None:
            raise GenerationFailed("the engine ended the stream before a choice had stopped")
        return ChoiceAnswer(
            text="".join(self.text),
            thinking="".join(self.thinking),
            calls=tuple(
                ToolCall(id=id, name=name, arguments="".join(arguments))
                for _, (id, name, arguments) in sorted(self.calls.items())
            ),
            reason=self.stopped.reason,
            detail=self.stopped.detail,
            ended_by=self.stopped.ended_by,
            tokens=tuple(self.tokens),
            thinking_tokens=tuple(self.thinking_tokens),
        )


def fold(events: Iterable[Event]) -> Answer:
    """The whole answer that these events spell.

    Raises:
        RequestError: the stream ended with `Failed`, or without an end.
    """
    drafts: dict[int, _Draft] = {}
    for event in events:
        match event:
            case TextDelta(choice, text, tokens):
                draft = drafts.setdefault(choice, _Draft())
                draft.text.append(text)
                draft.tokens.extend(tokens)
            case ThinkingDelta(choice, text, tokens):
                draft = drafts.setdefault(choice, _Draft())
                draft.thinking.append(text)
                draft.thinking_tokens.extend(tokens)
            case ToolCallDelta(choice):
                drafts.setdefault(choice, _Draft()).call(event)
            case Stopped(choice):
                drafts.setdefault(choice, _Draft()).stopped = event
            case Finished(usage, timings, token_sha):
                choices = tuple(draft.answer() for _, draft in sorted(drafts.items()))
                return Answer(choices, usage, timings, token_sha)
            case Failed():
                raise event.error()
            case Queued() | Started() | Progress():
                pass
    raise GenerationFailed("the engine ended the stream without a result")
