"""Server-sent events: a message, block by block."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from tensorfold.ir import (
    Event,
    Failed,
    Finished,
    Progress,
    Queued,
    Started,
    Stopped,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from tensorfold.wire.stats import ReplyStats
from tensorfold_dialect_anthropic.errors import error_body
from tensorfold_dialect_anthropic.replies import (
    FoldBody,
    MessageHead,
    StopWord,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UsageBody,
    stop_words,
)

__all__ = ["KEEP_ALIVE", "MessageEncoder"]


class Opening(MessageHead):
    """The message as it begins."""

    content: tuple[()]
    stop_reason: None
    stop_sequence: None
    usage: UsageBody


class MessageStart(msgspec.Struct, tag="message_start"):
    """The first event."""

    message: Opening


class TextPiece(msgspec.Struct, tag="text_delta"):
    """More text."""

    text: str


class ThinkingPiece(msgspec.Struct, tag="thinking_delta"):
    """More reasoning."""

    thinking: str


class SignaturePiece(msgspec.Struct, tag="signature_delta"):
    """Ends the reasoning."""

    signature: str


class InputPiece(msgspec.Struct, tag="input_json_delta"):
    """More of a call's input."""

    partial_json: str


class BlockStart(msgspec.Struct, tag="content_block_start"):
    """A block begins."""

    index: int
    content_block: TextBlock | ThinkingBlock | ToolUseBlock


class BlockDelta(msgspec.Struct, tag="content_block_delta"):
    """A block grows."""

    index: int
    delta: TextPiece | ThinkingPiece | SignaturePiece | InputPiece


class BlockStop(msgspec.Struct, tag="content_block_stop"):
    """A block ends."""

    index: int


class Ending(msgspec.Struct):
    """Why the message ends."""

    stop_reason: StopWord
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, tag="message_delta"):
    """The end of the message, and the tokens counted, which replace those of its beginning."""

    delta: Ending
    usage: UsageBody
    tensorfold: FoldBody


class MessageStop(msgspec.Struct, tag="message_stop"):
    """The last event."""


class Ping(msgspec.Struct, tag="ping"):
    """Says nothing."""


Framed: TypeAlias = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping


def framed(event: Framed) -> bytes:
    """An event with its name, without which SDKs skip it."""
    name = str(event.__struct_config__.tag).encode()
    return b"event: " + name + b"\ndata: " + msgspec.json.encode(event) + b"\n\n"


KEEP_ALIVE = framed(Ping())

Key: TypeAlias = str | int
"""Of a block: `text`, `thinking`, or the number of a call."""


class MessageEncoder:
    """Encodes one stream. One block is open at a time; a delta of another kind ends it and opens the next."""

    def __init__(self, head: MessageHead) -> None:
        self._head = head
        self._index = -1
        self._open: Key | None = None
        self._blanks = ""
        """Text at the start of a block, held until it is more than blanks."""
        self._stopped = Stopped(0, "end")

    def feed(self, event: Event) -> bytes:
        """The bytes that tell of this event."""
        match event:
            case Queued(prompt_tokens):
                return self._start(prompt_tokens)
            case Started() | Progress():
                return b""
            case TextDelta(_, text):
                return self._text(text)
            case ThinkingDelta(_, text):
                if not text:
                    return b""
                return self._opened("thinking", ThinkingBlock("")) + self._delta(ThinkingPiece(text))
            case ToolCallDelta():
                return self._call(event)
            case Stopped():
                self._stopped = event
                return self._close()
            case Finished():
                return self._end(event)
            case Failed():
                body = msgspec.json.encode(error_body(event.error()))
                return b"event: error\ndata: " + body + b"\n\n"

    def _start(self, prompt_tokens: int) -> bytes:
        head, usage = self._head, UsageBody.of(Usage(prompt_tokens, 0))
        return framed(MessageStart(Opening(head.id, head.role, head.model, (), None, None, usage)))

    def _text(self, text: str) -> bytes:
        if self._open != "text":
            text = self._blanks + text
            self._blanks = "" if text.strip() else text
            if self._blanks or not text:
                return b""
        return self._opened("text", TextBlock("")) + self._delta(TextPiece(text)) if text else b""

    def _call(self, delta: ToolCallDelta) -> bytes:
        opened = self._opened(delta.index, ToolUseBlock(delta.id or "", delta.name or ""))
        return opened + (self._delta(InputPiece(delta.arguments)) if delta.arguments else b"")

    def _opened(self, key: Key, block: TextBlock | ThinkingBlock | ToolUseBlock) -> bytes:
        """Open a block, unless it is open."""
        if self._open == key:
            return b""
        closed = self._close()
        self._open, self._index = key, self._index + 1
        return closed + framed(BlockStart(self._index, block))

    def _delta(self, piece: TextPiece | ThinkingPiece | SignaturePiece | InputPiece) -> bytes:
        return framed(BlockDelta(self._index, piece))

    def _close(self) -> bytes:
        """End the open block, if any; held blanks belong to none."""
        key, self._open, self._blanks = self._open, None, ""
        if key is None:
            return b""
        signed = self._delta(SignaturePiece("")) if key == "thinking" else b""
        return signed + framed(BlockStop(self._index))

    def _end(self, finished: Finished) -> bytes:
        word, sequence, extra = stop_words(self._stopped.reason, self._stopped.detail)
        fold = FoldBody(finished.token_sha[0], ReplyStats.of(finished.usage, finished.timings), extra)
        ending = MessageDelta(Ending(word, sequence), UsageBody.of(finished.usage), fold)
        return framed(ending) + framed(MessageStop())
