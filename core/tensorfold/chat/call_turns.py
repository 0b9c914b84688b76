"""Turns of calls and results as a template takes them that wants one call a turn, or results behind calls alone."""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.chat.messages import TemplateMessage
from tensorfold.ir import JSON

__all__ = ["one_call_a_turn", "without_stray_results"]


def one_call_a_turn(messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
    """Each call is a turn of its own with its results behind it; text and reasoning stay with the first."""
    told: list[TemplateMessage] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        behind = _results_behind(messages, at)
        at += 1 + len(behind)
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or len(calls) < 2:
            told += [message, *behind]
            continue
        rest = list(behind)
        for number, call in enumerate(calls):
            told.append({**(message if number == 0 else _bare(message)), "tool_calls": [call]})
            own = _results_of(call, rest)
            told += own
            rest = [result for result in rest if result not in own]
        told += rest
    return told


def _results_behind(messages: Sequence[TemplateMessage], at: int) -> list[TemplateMessage]:
    behind: list[TemplateMessage] = []
    for message in messages[at + 1 :]:
        if message["role"] != "tool":
            break
        behind.append(message)
    return behind


def _results_of(call: JSON, results: Sequence[TemplateMessage]) -> list[TemplateMessage]:
    """Those that name the call; else the first one without an id."""
    id = call.get("id") if isinstance(call, dict) else None
    named = [result for result in results if id is not None and result.get("tool_call_id") == id]
    return named or [result for result in results if "tool_call_id" not in result][:1]


def _bare(message: TemplateMessage) -> TemplateMessage:
    return {"role": message["role"], "content": ""}


def without_stray_results(messages: Sequence[TemplateMessage]) -> list[TemplateMessage]:
    """Results behind no call are what the user says."""
    told: list[TemplateMessage] = []
    called = False
    for message in messages:
        if message["role"] != "tool":
            called = bool(message.get("tool_calls"))
        elif not called:
            told.append({"role": "user", "content": message["content"]})
            continue
        told.append(message)
    return told
