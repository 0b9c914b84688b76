"""What dialects are tried with: a served model, foreign bodies, every error, the events of a reply."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from tensorfold.contracts.dialect import (
    Codec,
    DecodeContext,
    InquiryCodec,
)
from tensorfold.contracts.engine import ModelInfo
from tensorfold.errors import (
    ContextLengthExceeded,
    DecodeError,
    Forbidden,
    GenerationFailed,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    PayloadTooLarge,
    Rejected,
    RequestError,
    Unauthorized,
    Unsupported,
    UnsupportedMedia,
)
from tensorfold.ir import (
    Event,
    Finished,
    Queued,
    Started,
    Stopped,
    TextDelta,
    Timings,
    Usage,
)

__all__ = ["CONTEXT", "ERRORS", "FOREIGN_BODIES", "MODEL", "refusal", "reply_events"]

MODEL = ModelInfo(
    id="acme/quokka",
    aliases=("quokka",),
    created=1_790_000_000,
    family="llama",
    backend="torch",
    window=4096,
    trained_window=8192,
    vocabulary=32_000,
    parameters=135_000_000,
)
"""A served model."""
CONTEXT = DecodeContext(request_id="r0", created=1_790_000_001, model=MODEL)

FOREIGN_BODIES = {
    "empty": b"",
    "a list": b"[]",
    "null": b"null",
    "a text": b'"x"',
    "cut off": b'{"model":',
    "no fields": b"{}",
    "not UTF-8": b'{"model": "\xff"}',
    "half a surrogate pair": b'{"model": "\\ud83c"}',
    "deep": b'{"model": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "not a number": b'{"model": NaN}',
    "something behind": b"{} x",
}
ERRORS: tuple[RequestError, ...] = (
    DecodeError("shape", param="messages[0]"),
    InvalidRequest("meaning", param="n"),
    Unsupported("field", param="audio"),
    ContextLengthExceeded("This server's maximum context length is 8 tokens", param="messages"),
    Unauthorized("who?"),
    Forbidden("not you"),
    NotFound("nothing"),
    MethodNotAllowed("not so"),
    PayloadTooLarge("too long"),
    UnsupportedMedia("what?"),
    Rejected("full", status=429),
    Rejected("full"),
    GenerationFailed('broken, with a quote: " and an é'),
)


def reply_events(texts: Iterable[str], choices: int = 1) -> Iterator[Event]:
    """The events of a reply whose choices all have these texts."""
    yield Queued(3)
    yield Started(1)
    for choice in range(choices):
        for text in texts:
            yield TextDelta(choice, text)
        yield Stopped(choice, "end")
    yield Finished(Usage(3, 2 * choices, cached_tokens=1), Timings(0.1, 0.2, 0.3), ("00ff",) * choices)


def refusal(codec: Codec | InquiryCodec, body: bytes) -> RequestError:
    """The error with which a codec refuses a body; a 4xx that shows nothing of the code's inside."""
    with pytest.raises(RequestError) as caught:
        codec.decode(body, CONTEXT)
    error = caught.value
    assert 400 <= error.status < 500
    assert error.message
    text = codec.encode_error(error, "req_1").decode()
    for word in ("NoneType", "Traceback", "has no attribute", "msgspec", "Struct"):
        assert word not in text
    return error
