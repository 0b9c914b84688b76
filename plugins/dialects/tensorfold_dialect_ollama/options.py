"""The fields that both endpoints share: options, thinking, format."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensorfold.contracts.dialect import DecodeContext
from tensorfold.errors import DecodeError
from tensorfold.ir import JSON, Grammar, JsonObject, JsonSchema, Limits, Prompt, Request, Sampling
from tensorfold.wire import Int64, LenientNumber, UnservedFields, decode_value, lenient_float, lenient_int

__all__ = ["Shared", "build_request", "read_think"]


class Options(msgspec.Struct):
    """How to sample and where to stop. What is not here (`num_ctx`, `num_gpu`, ...) is for the server to decide."""

    temperature: LenientNumber = None
    top_p: LenientNumber = None
    top_k: LenientNumber = None
    min_p: float | None = None
    seed: LenientNumber = None
    num_predict: Int64 | None = None
    """Less than zero: as long as it takes."""
    stop: str | list[str] | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


UNSERVED: Mapping[str, tuple[JSON, ...]] = {
    "mirostat": (0,),
    "tfs_z": (1,),
    "typical_p": (1,),
    "repeat_last_n": (-1,),
    "penalize_newline": (True,),
}
"""Options that change a reply and are not served, with the values that pass."""


class Shared(msgspec.Struct, kw_only=True):
    """The fields; null means left out, everywhere."""

    model: str | None = None
    options: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    format: str | dict[str, JSON] | None = None
    """`json`, or a JSON schema."""
    stream: bool | None = None
    """Null is true."""
    think: bool | str | None = None
    """True, false, or an effort."""
    keep_alive: JSON = None
    """The model is always loaded."""


_DECODER = msgspec.json.Decoder(Options)
_UNSERVED = UnservedFields(UNSERVED)


def _options(raw: msgspec.Raw) -> Options:
    text = bytes(raw)
    if text in (b"", b"null"):
        return Options()
    options = decode_value(_DECODER, text, "options")
    _UNSERVED.check(text)
    return options


def build_request(prompt: Prompt, shared: Shared, context: DecodeContext) -> Request:
    """The request.

    Raises:
        DecodeError: a field is malformed.
        InvalidRequest: a field is impossible.
        Unsupported: an option that is not served.
    """
    options = _options(shared.options)
    top_k = lenient_int(options.top_k, "options.top_k")
    return Request(
        id=context.request_id,
        prompt=prompt,
        model=shared.model or "",
        sampling=Sampling(
            temperature=lenient_float(options.temperature, "options.temperature"),
            top_p=lenient_float(options.top_p, "options.top_p"),
            top_k=None if top_k is None else max(top_k, 0),  # zero or less is off
            min_p=options.min_p,
            seed=lenient_int(options.seed, "options.seed"),
            repetition_penalty=options.repeat_penalty,
            presence_penalty=options.presence_penalty,
            frequency_penalty=options.frequency_penalty,
        ),
        limits=Limits(
            max_tokens=None if options.num_predict is None or options.num_predict < 0 else options.num_predict,
            stop=(options.stop,) if isinstance(options.stop, str) else tuple(options.stop or ()),
            overflow="cut",
        ),
        grammar=_grammar(shared.format),
    )


def _grammar(format: str | dict[str, JSON] | None) -> Grammar | None:
    match format:
        case None | "":
            return None
        case "json":
            return JsonObject()
        case dict():
            return JsonSchema(format)
        case other:
            raise DecodeError(f"format is {other[:40]!r}, and must be json or a JSON schema", param="format")


def read_think(think: bool | str | None) -> tuple[str | None, dict[str, JSON]]:
    """The effort and the template's switch.

    Raises:
        DecodeError: no such effort.
    """
    match think:
        case None:
            return None, {}
        case bool():
            return None, {"enable_thinking": think}
        case "low" | "medium" | "high" | "max" as effort:
            return effort, {}
        case other:
            raise DecodeError(f"think is {other[:40]!r}, and must be true, false, low, medium or high", param="think")
