"""One request for one prompt, whatever API it came through."""

from __future__ import annotations

from typing import Literal

import msgspec

from tensorfold.errors import InvalidRequest
from tensorfold.ir.grammars import Grammar
from tensorfold.ir.limits import Limits
from tensorfold.ir.prompts import Prompt
from tensorfold.ir.sampling import Sampling

__all__ = ["MAX_ALTERNATIVES", "MAX_CHOICES", "Request", "ToolChoice", "TraceContext"]

MAX_CHOICES = 128
"""The most choices that one request may ask for."""
MAX_ALTERNATIVES = 20
"""The most alternatives a token that logprobs may ask for."""


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
    grammar_field: str = "response_format"
    """The body's field that asked for the grammar, for errors about it."""
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
