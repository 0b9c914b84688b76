"""The fields that the endpoints share: how to sample, where to stop, what to stream."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from tensorfold.contracts.dialect import DecodeContext
from tensorfold.errors import DecodeError, InvalidRequest
from tensorfold.ir import JSON, Limits, Prompt, Request, Sampling, ToolChoice
from tensorfold.wire import Int64, LenientNumber, lenient_float, lenient_int
from tensorfold.wire.grammars import GrammarFields, read_grammar

__all__ = [
    "MAX_REPLIES",
    "Controls",
    "ReplyFields",
    "StreamOptions",
    "build_requests",
    "read_limits",
    "read_priority",
    "read_sampling",
]

MAX_REPLIES = 128
"""The most replies of one body: prompts times `n`."""
MAX_STOPS = 64
"""The most stop strings, and stop ids."""
MAX_STOP_LENGTH = 4096
"""Characters of one stop string."""
MAX_BIASES = 1024
"""The most entries of `logit_bias`."""

_TOKEN_ID = re.compile(r"\d{1,10}", re.ASCII)


class StreamOptions(msgspec.Struct):
    """`stream_options`; without `stream` it changes nothing."""

    include_usage: bool | None = None
    """Usage in an event of its own, instead of on the one with `finish_reason`."""
    include_obfuscation: bool | None = None
    """Fill every event up to a multiple of 64 bytes, so that its length does not tell its text's."""
    continuous_usage_stats: bool | None = None
    """With `include_usage`: usage so far on every event."""

    @property
    def counting(self) -> bool:
        """Whether every event tells the tokens so far."""
        return bool(self.include_usage and self.continuous_usage_stats)


class ReplyFields(GrammarFields):
    """What a reply shall be, in chat, completions and Responses alike; null means left out, everywhere."""

    model: str | None = None
    temperature: LenientNumber = None
    top_p: LenientNumber = None
    top_k: LenientNumber = None
    seed: LenientNumber = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    min_tokens: Int64 | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Int64] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    thinking_budget: Int64 | None = None
    reasoning_budget_tokens: Int64 | None = None
    """TabbyAPI's name of `thinking_budget`; when both are given they must agree."""
    loop_detect: bool | None = None
    loop_detect_window: Int64 | None = None
    """An older name: 0 is false, any other size true."""
    loop_detect_error: bool | None = None
    draft: bool | None = None
    priority: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class Controls(ReplyFields):
    """The fields of chat and completions; null means left out, everywhere."""

    max_tokens: Int64 | None = None
    max_completion_tokens: Int64 | None = None
    """The newer name of `max_tokens`; when both are given they must agree."""
    n: Int64 | None = None
    stop_after_output: bool | None = None
    """End at the first text."""
    return_progress: bool | None = None
    """In a stream: tell how far the prompt is, as llama.cpp does."""
    user: str | None = None
    metadata: dict[str, JSON] | None = None
    store: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    """These five say who asks and what to keep; they change no reply and are not used."""


def build_requests(
    prompts: tuple[Prompt, ...],
    controls: Controls,
    context: DecodeContext,
    *,
    tool_choice: ToolChoice = ToolChoice(),  # noqa: B008 - a frozen value
    logprobs: int | None = None,
    echo: bool = False,
) -> tuple[Request, ...]:
    """One request for each prompt, with the same controls; `logprobs` are alternatives a token.

    Raises:
        DecodeError: a field is malformed.
        InvalidRequest: a field is impossible.
    """
    choices = 1 if controls.n is None else controls.n
    if choices * len(prompts) > MAX_REPLIES:
        field = "prompt" if len(prompts) > 1 else "n"
        raise InvalidRequest(
            f"{len(prompts)} prompts, {choices} replies each: at most {MAX_REPLIES} in all", param=field
        )
    sampling, grammar, priority = read_sampling(controls), read_grammar(controls), read_priority(controls)
    limits = read_limits(controls, _max_tokens(controls.max_tokens, controls.max_completion_tokens))
    if controls.stop_after_output:
        limits = msgspec.structs.replace(limits, stop_after_output=True)
    return tuple(
        Request(
            id=context.request_id if len(prompts) == 1 else f"{context.request_id}-{index}",
            prompt=prompt,
            model=controls.model or "",
            choices=choices,
            sampling=sampling,
            limits=limits,
            grammar=grammar,
            tool_choice=tool_choice,
            draft=controls.draft is not False,
            priority=priority,
            progress=bool(controls.stream and controls.return_progress),
            counted=bool(controls.stream and controls.stream_options and controls.stream_options.counting),
            logprobs=logprobs,
            echo=echo,
        )
        for index, prompt in enumerate(prompts)
    )


def read_priority(fields: ReplyFields) -> Literal["foreground", "background"]:
    """Who goes first.

    Raises:
        DecodeError: another word.
    """
    match fields.priority:
        case None | "foreground":
            return "foreground"
        case "background":
            return "background"
        case _:
            raise DecodeError("priority must be background, foreground or null", param="priority")


def read_sampling(fields: ReplyFields) -> Sampling:
    """How to draw.

    Raises:
        DecodeError: a field is malformed.
        InvalidRequest: a field is impossible.
    """
    top_k = lenient_int(fields.top_k, "top_k")
    return Sampling(
        temperature=lenient_float(fields.temperature, "temperature"),
        top_p=lenient_float(fields.top_p, "top_p"),
        top_k=None if top_k is None else max(top_k, 0),  # zero or less is off
        min_p=fields.min_p,
        seed=lenient_int(fields.seed, "seed"),
        presence_penalty=fields.presence_penalty,
        frequency_penalty=fields.frequency_penalty,
        repetition_penalty=fields.repetition_penalty,
        logit_bias=_logit_bias(fields.logit_bias or {}),
    )


def _logit_bias(entries: dict[str, float]) -> tuple[tuple[int, float], ...]:
    if len(entries) > MAX_BIASES:
        raise InvalidRequest(f"logit_bias has {len(entries)} entries, and at most {MAX_BIASES}", param="logit_bias")
    biases: dict[int, float] = {}
    for key, bias in entries.items():
        if not _TOKEN_ID.fullmatch(key):
            raise DecodeError(f"logit_bias: {key[:40]!r} is no token id", param="logit_bias")
        if biases.setdefault(int(key), bias) != bias:
            raise DecodeError(f"logit_bias gives token {int(key)} two biases", param="logit_bias")
    return tuple(sorted(biases.items()))


def read_limits(fields: ReplyFields, max_tokens: int | None) -> Limits:
    """Where to end.

    Raises:
        InvalidRequest: a field is impossible, or contradicts its other name.
    """
    return Limits(
        max_tokens=max_tokens,
        min_tokens=fields.min_tokens or 0,
        stop=_stops(fields.stop),
        stop_token_ids=_stop_ids(fields.stop_token_ids or []),
        ignore_eos=bool(fields.ignore_eos),
        include_stop_str=bool(fields.include_stop_str_in_output),
        thinking_budget=_agreed("thinking_budget", fields.thinking_budget, fields.reasoning_budget_tokens) or None,
        loop_detect=_loop_detect(fields),
        loop_detect_error=bool(fields.loop_detect_error),
    )


def _agreed(name: str, one: int | None, other: int | None) -> int | None:
    if one is not None and other is not None and one != other:
        raise InvalidRequest(f"{name} is {one}, and {other} under its other name: give one of them", param=name)
    return other if one is None else one


def _loop_detect(fields: ReplyFields) -> bool | None:
    if fields.loop_detect is None and fields.loop_detect_window is not None:
        return fields.loop_detect_window != 0
    return fields.loop_detect


def _max_tokens(older: int | None, newer: int | None) -> int | None:
    if older is not None and newer is not None and older != newer:
        raise InvalidRequest(
            f"max_tokens is {older} and max_completion_tokens {newer}: give one of them, or the same in both",
            param="max_completion_tokens",
        )
    if newer is not None and newer < 1:
        raise InvalidRequest(f"max_completion_tokens is {newer}, and must be at least 1", param="max_completion_tokens")
    return older if newer is None else newer


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > MAX_STOPS:
        raise InvalidRequest(f"{len(stops)} stop strings, and at most {MAX_STOPS} are looked for", param="stop")
    if any(len(text) > MAX_STOP_LENGTH for text in stops):
        raise InvalidRequest(f"a stop string is longer than {MAX_STOP_LENGTH} characters", param="stop")
    return stops


def _stop_ids(ids: list[int]) -> tuple[int, ...]:
    if len(ids) > MAX_STOPS:
        raise InvalidRequest(f"{len(ids)} stop ids, and at most {MAX_STOPS} are looked for", param="stop_token_ids")
    if any(token < 0 for token in ids):
        raise InvalidRequest("stop_token_ids holds a negative id", param="stop_token_ids")
    return tuple(ids)
