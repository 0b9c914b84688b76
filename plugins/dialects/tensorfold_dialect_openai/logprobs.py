"""Log-probabilities in the two shapes that the API has: chat's, and the older one of completions."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

import msgspec

from tensorfold.errors import InvalidRequest
from tensorfold.ir import Alternative, TokenInfo

__all__ = ["ChatLogprobs", "TextLogprobs", "TextLogprobsWriter", "chat_logprobs", "wanted_in_chat", "wanted_in_text"]

MOST = 20
"""The most alternatives a token."""


def wanted_in_chat(logprobs: bool | None, top_logprobs: int | None) -> int | None:
    """How many alternatives a chat asks for; None: no log-probabilities.

    Raises:
        InvalidRequest: too many, or alternatives without log-probabilities.
    """
    if top_logprobs is not None and not 0 <= top_logprobs <= MOST:
        raise InvalidRequest(f"top_logprobs is {top_logprobs}, and must be from 0 to {MOST}", param="top_logprobs")
    if not logprobs:
        if top_logprobs:
            raise InvalidRequest("top_logprobs is given without logprobs: true", param="top_logprobs")
        return None
    return top_logprobs or 0


def wanted_in_text(logprobs: int | bool | None) -> int | None:
    """How many alternatives a completion asks for; None: no log-probabilities.

    Raises:
        InvalidRequest: it is no number from 0 to 20.
    """
    if logprobs is None or logprobs is False:
        return None
    if logprobs is True or not 0 <= logprobs <= MOST:
        raise InvalidRequest(
            f"logprobs must be a number from 0 to {MOST}: how many alternatives each token gets", param="logprobs"
        )
    return logprobs


# ---- chat -------------------------------------------------------------------------------------------------


class TopLogprob(msgspec.Struct):
    """A token that could have stood there."""

    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogprob(msgspec.Struct):
    """One visible token."""

    token: str
    logprob: float | None
    bytes: list[int]
    """The token's own, which may be part of a character: joined, those of all tokens spell the content."""
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct):
    """Of one reply, or of a part of it."""

    content: list[TokenLogprob]
    refusal: None = None


def chat_logprobs(tokens: Iterable[TokenInfo]) -> ChatLogprobs:
    """The log-probabilities of these tokens."""
    return ChatLogprobs(
        [
            TokenLogprob(
                token.data.decode(errors="replace"),
                _finite(token.logprob),
                list(token.data),
                [
                    TopLogprob(each.data.decode(errors="replace"), _finite(each.logprob), list(each.data))
                    for each in token.alternatives
                ],
            )
            for token in tokens
        ]
    )


# ---- completions ------------------------------------------------------------------------------------------


class TextLogprobs(msgspec.Struct):
    """Of one reply, or of a part of it; one entry of each list for each token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    """Null: the first token of an echoed prompt, which nothing stands before."""
    top_logprobs: list[dict[str, float | None] | None]
    """By token, the drawn one included."""
    text_offset: list[int]
    """Where in the choice's text the token begins, in characters."""


class TextLogprobsWriter:
    """Writes one choice's, part by part."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._characters = 0

    def write(self, tokens: Sequence[TokenInfo]) -> TextLogprobs:
        """The next tokens."""
        return TextLogprobs(
            tokens=[_spelled(token.data) for token in tokens],
            token_logprobs=[_finite(token.logprob) for token in tokens],
            top_logprobs=[_top(token) for token in tokens],
            text_offset=[self._offset(token) for token in tokens],
        )

    def _offset(self, token: TokenInfo) -> int:
        offset = self._characters
        self._characters += len(self._decoder.decode(token.data))
        return offset


def _top(token: TokenInfo) -> dict[str, float | None] | None:
    if token.logprob is None:
        return None
    entries: dict[str, float | None] = {}
    # The likeliest first; of tokens that are spelled alike, the likelier one.
    for each in (*token.alternatives, Alternative(token.id, token.data, token.logprob)):
        entries.setdefault(_spelled(each.data), _finite(each.logprob))
    return entries


def _spelled(data: bytes) -> str:
    """A token's text; of a part of a character its bytes, as the API spells them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _finite(logprob: float | None) -> float | None:
    """JSON has no infinity: a token that cannot come at all has a large negative number, as elsewhere."""
    return None if logprob is None else max(logprob, -9999.0)
