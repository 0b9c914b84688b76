"""A request as a file: what was asked, what came of it, and nothing that opens a door. For reports, `inspect` and `replay`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import cast

import msgspec

from tensorfold.errors import ConfigError
from tensorfold.ir import JSON, Timings, Usage

__all__ = ["REDACTED", "RecordedAnswer", "RecordedRequest", "read_record", "redacted_body", "redacted_headers"]

VERSION = 1
REDACTED = "(redacted)"
LEAST_KEY = 8
"""Characters of a key that is looked for in the body as well; a shorter one would be found in any text."""

_SHOWN_HEADERS = frozenset(
    ("accept", "anthropic-beta", "anthropic-version", "content-length", "content-type", "openai-beta", "user-agent")
)
_SECRET_HEADERS = frozenset(("authorization", "x-api-key", "cookie", "proxy-authorization"))
_SECRET_FIELDS = frozenset(
    ("api_key", "apikey", "api-key", "x-api-key", "authorization", "access_token", "auth_token", "password", "secret")
)
_PROMPT_FIELDS = frozenset(("messages", "prompt", "input", "system", "instructions", "tools", "suffix"))
"""What is kept word for word, whatever it looks like; a key that opened the door is taken out of it all the same."""


class RecordedAnswer(msgspec.Struct, frozen=True):
    """How a request ended."""

    status: int
    """Of the HTTP answer; 499: the client left."""
    reason: str
    """The first choice's stop reason, or the error's code."""
    seconds: float
    usage: Usage | None = None
    timings: Timings | None = None
    token_sha: tuple[str, ...] = ()
    """Of each choice's ids."""


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    version: int = VERSION
    server: str = ""
    """Who wrote it (`tensorfold 1.0`)."""
    model: str = ""
    """What was served."""
    id: str
    """The request's own, as in the log."""
    time: str
    """When it came, in ISO 8601."""
    label: str = ""
    """Of the key that asked."""
    method: str
    path: str
    headers: dict[str, str]
    """Those that matter; of the ones that carry a key only that they were there."""
    body: JSON = None
    """The whole body, with every prompt, without keys."""
    body_text: str | None = None
    """A body that is no JSON, as it was."""
    answer: RecordedAnswer | None = None
    """None: there was none yet when the file was written; the server may have ended in between."""


def redacted_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers worth keeping; names in lower case."""
    kept: dict[str, str] = {}
    for name, value in headers.items():
        if name in _SECRET_HEADERS:
            kept[name] = REDACTED
        elif name in _SHOWN_HEADERS or name.startswith("x-stainless-"):
            kept[name] = value
    return kept


def redacted_body(content: bytes, keys: Collection[str]) -> tuple[JSON, str | None]:
    """The body as JSON, else as text; `keys` are those that the request's headers offered."""
    secrets = [key for key in keys if len(key) >= LEAST_KEY]
    try:
        body = cast("JSON", json.loads(content))
        return _without(body, secrets, outside=True), None
    except (ValueError, RecursionError):
        return None, _cleared(content.decode("utf-8", "backslashreplace"), secrets)


def _without(value: JSON, secrets: Collection[str], *, outside: bool) -> JSON:
    """`outside`: not within a prompt, so that a field's name tells a secret."""
    match value:
        case str():
            return _cleared(value, secrets)
        case list():
            return [_without(each, secrets, outside=outside) for each in value]
        case dict():
            return {
                name: REDACTED
                if outside and name.lower() in _SECRET_FIELDS
                else _without(each, secrets, outside=outside and name not in _PROMPT_FIELDS)
                for name, each in value.items()
            }
        case _:
            return value


def _cleared(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def read_record(path: Path) -> RecordedRequest:
    """A file that `--log-requests` wrote.

    Raises:
        ConfigError: it cannot be read, or is no such file.
    """
    try:
        # The standard library's reader keeps integers of any size as they are.
        record = msgspec.convert(json.loads(path.read_bytes()), RecordedRequest)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise ConfigError(f"{path} is no request that --log-requests wrote: {error}") from None
    if record.version != VERSION:
        raise ConfigError(f"{path} was written by another version: its format is {record.version}, ours {VERSION}")
    return record
