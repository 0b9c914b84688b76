"""What a template writes around a call's name, told from its own rendering of one."""

from __future__ import annotations

from tensorfold.chat.messages import TemplateMessage
from tensorfold.chat.template import ChatTemplate, Conversation
from tensorfold.contracts.chat import CallFrame, CallMarks
from tensorfold.errors import InvalidRequest
from tensorfold.ir import JSON

__all__ = ["frame_of"]

_USER, _NAME, _KEY, _VALUE = "xqzuser", "xqzname", "xqzkey", "xqzvalue"


def frame_of(template: ChatTemplate, marks: CallMarks) -> CallFrame | None:
    """The frame of calls in this template; None: it renders none between these marks."""
    full, empty = _rendered(template, {_KEY: _VALUE}), _rendered(template, {})
    at = full.rfind(_NAME)
    opener = full.rfind(marks.opener, 0, at) if at >= 0 else -1
    key = full.find(_KEY, at)
    if opener < 0 or key < 0:
        return None
    behind_empty = empty[empty.rfind(_NAME) + len(_NAME) :]
    closer = behind_empty.find(marks.closer)
    if _NAME not in empty or closer < 0:
        return None
    return CallFrame(
        before=full[opener:at],
        arguments=full[at + len(_NAME) : key],
        nothing=behind_empty[: closer + len(marks.closer)],
    )


def _rendered(template: ChatTemplate, arguments: dict[str, JSON]) -> str:
    """A call behind a user's message, as the template writes it; empty when it writes none."""
    call: JSON = {"id": "c", "type": "function", "function": {"name": _NAME, "arguments": arguments}}
    messages: list[TemplateMessage] = [
        {"role": "user", "content": _USER},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    try:
        text = template.render(Conversation(messages, generation=False)).text
    except InvalidRequest:
        return ""
    return text[text.rfind(_USER) :] if _USER in text else ""
