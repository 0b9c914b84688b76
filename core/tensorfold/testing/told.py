"""One conversation asked through chat, Responses and Messages, whole and streamed, and what each of them tells."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from tensorfold.testing.whole_server import WholeServer

__all__ = ["WAYS", "Told", "body_for", "told"]

WAYS: tuple[tuple[str, bool], ...] = tuple(
    (path, stream) for path in ("/v1/chat/completions", "/v1/responses", "/v1/messages") for stream in (False, True)
)
"""Path, and whether it is streamed."""


@dataclass(slots=True)
class Told:
    """What a client is told of a reply, in no dialect's words."""

    content: str = ""
    thinking: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Names, and arguments as text."""
    ids: list[str] = field(default_factory=list[str])
    """Of the calls."""
    reason: str = ""
    """`end`, `length` or `tool_calls`."""
    sha: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def arguments(self) -> list[tuple[str, Any]]:
        """Names and parsed arguments; the text itself where it does not parse."""
        return [(name, _parsed(text)) for name, text in self.calls]

    @property
    def same(self) -> tuple[Any, ...]:
        """What has to be the same in every dialect. Blanks beside calls are told by some and not by others."""
        content = self.content.strip() if self.calls else self.content
        usage = self.prompt_tokens, self.completion_tokens
        return content, self.thinking, self.arguments, self.reason, self.sha, usage


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


# ---- asking ------------------------------------------------------------------------------------------------


def body_for(path: str, chat: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a chat, in the words of the path's dialect."""
    match path:
        case "/v1/responses":
            return _responses_body(chat)
        case "/v1/messages":
            return _messages_body(chat)
        case _:
            return dict(chat)


def _responses_body(chat: Mapping[str, Any]) -> dict[str, Any]:
    """The same as a body of Responses."""
    body = {key: value for key, value in chat.items() if key not in _CHAT_ALONE}
    items: list[dict[str, Any]] = []
    for message in chat["messages"]:
        items += _items(message)
    body["input"] = items
    if tools := chat.get("tools"):
        body["tools"] = [{"type": "function", **tool["function"]} for tool in tools]
    if (choice := chat.get("tool_choice")) is not None:
        body["tool_choice"] = choice if isinstance(choice, str) else {"type": "function", **choice["function"]}
    if "max_tokens" in chat:
        body["max_output_tokens"] = chat["max_tokens"]
    if "response_format" in chat:
        format = chat["response_format"]
        body["text"] = {"format": {"type": format["type"], **format.get("json_schema", {})}}
    return body


_CHAT_ALONE = ("messages", "tools", "tool_choice", "max_tokens", "response_format")


def _items(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    match message:
        case {"role": "tool", "tool_call_id": id, "content": text}:
            yield {"type": "function_call_output", "call_id": id, "output": text}
        case {"role": "assistant"}:
            if reasoning := message.get("reasoning_content"):
                content = [{"type": "reasoning_text", "text": reasoning}]
                yield {"type": "reasoning", "summary": [], "content": content}
            if text := message.get("content"):
                yield {"role": "assistant", "content": text}
            for call in message.get("tool_calls") or ():
                yield {"type": "function_call", "call_id": call["id"], **call["function"]}
        case _:
            yield {"role": message["role"], "content": message["content"]}


def _messages_body(chat: Mapping[str, Any]) -> dict[str, Any]:
    """The same as a body of Messages; thinking is as the template has it, unless its variables are given."""
    body: dict[str, Any] = {
        key: chat[key] for key in ("temperature", "seed", "draft", "chat_template_kwargs") if key in chat
    }
    body["max_tokens"] = chat.get("max_tokens", 4096)
    if "chat_template_kwargs" not in chat:
        body["thinking"] = {"type": "adaptive"}
    body["messages"] = list(_turns(chat["messages"]))
    if stop := chat.get("stop"):
        body["stop_sequences"] = stop
    if tools := chat.get("tools"):
        body["tools"] = [_tool(tool["function"]) for tool in tools]
        body["tool_choice"] = _choice(chat)
    if "response_format" in chat:
        schema = chat["response_format"]["json_schema"]["schema"]
        body["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return body


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    told = {"name": function["name"], "input_schema": function.get("parameters", {"type": "object"})}
    return {**told, "description": function["description"]} if "description" in function else told


def _choice(chat: Mapping[str, Any]) -> dict[str, Any]:
    alone = {"disable_parallel_tool_use": True} if chat.get("parallel_tool_calls") is False else {}
    match chat.get("tool_choice"):
        case {"function": {"name": name}}:
            return {"type": "tool", "name": name, **alone}
        case "required":
            return {"type": "any", **alone}
        case "none":
            return {"type": "none"}
        case _:
            return {"type": "auto", **alone}


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    for message in messages:
        match message:
            case {"role": "tool", "tool_call_id": id, "content": text}:
                yield {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": text}]}
            case {"role": "assistant"}:
                yield {"role": "assistant", "content": list(_blocks(message))}
            case _:
                yield {"role": message["role"], "content": message["content"]}


def _blocks(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if reasoning := message.get("reasoning_content"):
        yield {"type": "thinking", "thinking": reasoning, "signature": ""}
    if text := message.get("content"):
        yield {"type": "text", "text": text}
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield {
            "type": "tool_use",
            "id": call["id"],
            "name": function["name"],
            "input": json.loads(function["arguments"]),
        }


def told(server: WholeServer, path: str, chat: Mapping[str, Any], *, stream: bool) -> Told:
    """A chat, asked in the words of the path's dialect, and what came back."""
    answered = server.post(path, {**body_for(path, chat), "stream": stream})
    assert answered.status_code == 200, answered.text
    whole, streamed = _READERS[path]
    return streamed(_events(answered)) if stream else whole(answered.json())


def _events(answered: httpx.Response) -> list[dict[str, Any]]:
    data = [line.removeprefix("data: ") for line in answered.text.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


# ---- chat --------------------------------------------------------------------------------------------------

_CHAT_REASONS = {"stop": "end", "length": "length", "tool_calls": "tool_calls"}


def _usage(told: Told, body: Mapping[str, Any]) -> Told:
    usage = body["usage"]
    told.sha = body["tensorfold"]["token_sha"]
    told.prompt_tokens, told.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
    return told


def _chat(body: Mapping[str, Any]) -> Told:
    (choice,) = body["choices"]
    message = choice["message"]
    assert message.get("tool_calls") != [], "SDK loops take an empty list for a turn of tools"
    calls: list[Any] = message.get("tool_calls") or []
    told = Told(message["content"] or "", message.get("reasoning_content") or "")
    told.calls = [(call["function"]["name"], call["function"]["arguments"]) for call in calls]
    told.ids = [call["id"] for call in calls]
    told.reason = _CHAT_REASONS[choice["finish_reason"]]
    return _usage(told, body)


def _chat_stream(events: Sequence[Mapping[str, Any]]) -> Told:
    told, ended = Told(), False
    for choice in (choice for event in events for choice in event["choices"]):
        delta = choice["delta"]
        assert not ended, "nothing comes behind the finish reason"
        told.content += delta.get("content") or ""
        told.thinking += delta.get("reasoning_content") or ""
        assert delta.get("tool_calls") != []
        for piece in delta.get("tool_calls") or ():
            _add_piece(told, piece)
        if choice["finish_reason"] is not None:
            told.reason, ended = _CHAT_REASONS[choice["finish_reason"]], True
    assert ended
    return _usage(told, events[-1])


def _add_piece(told: Told, piece: Mapping[str, Any]) -> None:
    function = piece["function"]
    if "id" in piece:
        assert piece["index"] == len(told.calls), "indexes run from 0, and id and name come once"
        told.ids.append(piece["id"])
        told.calls.append((function["name"], function["arguments"]))
    else:
        assert piece["index"] == len(told.calls) - 1
        assert "name" not in function
        name, arguments = told.calls[-1]
        told.calls[-1] = name, arguments + function["arguments"]


# ---- Responses ---------------------------------------------------------------------------------------------


def _response(body: Mapping[str, Any]) -> Told:
    told = Told(sha=body["tensorfold"]["token_sha"])
    for item in body["output"]:
        match item["type"]:
            case "reasoning":
                told.thinking += "".join(part["text"] for part in item["content"])
            case "message":
                told.content += "".join(part["text"] for part in item["content"])
            case _:
                told.calls.append((item["name"], item["arguments"]))
                told.ids.append(item["call_id"])
    usage = body["usage"]
    told.prompt_tokens, told.completion_tokens = usage["input_tokens"], usage["output_tokens"]
    if body["status"] == "incomplete":
        assert body["incomplete_details"] == {"reason": "max_output_tokens"}
        told.reason = "length"
    else:
        assert body["status"] == "completed"
        told.reason = "tool_calls" if told.calls else "end"
    return told


def _response_stream(events: Sequence[Mapping[str, Any]]) -> Told:
    """What the last event says; the deltas before it have to say the same."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        kind = event["type"]
        assert "output_index" in event or not kind.startswith(("response.output_", "response.content_"))
        assert "content_index" in event or not kind.startswith(("response.content_part", "response.output_text"))
    whole = _response(events[-1]["response"])
    for kind, text in (
        ("response.reasoning_text.delta", whole.thinking),
        ("response.output_text.delta", whole.content),
        ("response.function_call_arguments.delta", "".join(arguments for _, arguments in whole.calls)),
    ):
        assert "".join(event["delta"] for event in events if event["type"] == kind) == text
    return whole


# ---- Messages ----------------------------------------------------------------------------------------------

_MESSAGE_REASONS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


def _message(body: Mapping[str, Any]) -> Told:
    told = Told(reason=_MESSAGE_REASONS[body["stop_reason"]], sha=body["tensorfold"]["token_sha"])
    for block in body["content"]:
        match block["type"]:
            case "thinking":
                told.thinking += block["thinking"]
            case "text":
                told.content += block["text"]
            case _:
                told.calls.append((block["name"], block.get("partial_json", json.dumps(block["input"]))))
                told.ids.append(block["id"])
    _message_usage(told, body["usage"])
    return told


def _message_usage(told: Told, usage: Mapping[str, Any]) -> None:
    told.prompt_tokens = usage["input_tokens"] + usage["cache_read_input_tokens"]
    told.completion_tokens = usage["output_tokens"]


_DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}


def _message_stream(events: Sequence[Mapping[str, Any]]) -> Told:
    told, open_block, index = Told(), "", -1
    for event in events:
        match event["type"]:
            case "content_block_start":
                block, index = event["content_block"], index + 1
                assert (open_block, event["index"]) == ("", index), "blocks do not overlap, and count from 0"
                open_block = block["type"]
                if open_block == "tool_use":
                    assert block["input"] == {}
                    told.calls.append((block["name"], ""))
                    told.ids.append(block["id"])
            case "content_block_delta":
                _add_delta(told, event, open_block, index)
            case "content_block_stop":
                assert event["index"] == index
                open_block = ""
            case "message_delta":
                told.reason = _MESSAGE_REASONS[event["delta"]["stop_reason"]]
                told.sha = event["tensorfold"]["token_sha"]
                _message_usage(told, event["usage"])
            case _:
                pass
    told.calls = [(name, arguments or "{}") for name, arguments in told.calls]
    return told


def _add_delta(told: Told, event: Mapping[str, Any], block: str, index: int) -> None:
    delta = event["delta"]
    assert event["index"] == index
    match delta["type"]:
        case "signature_delta":
            assert (block, delta["signature"]) == ("thinking", "")
        case "text_delta":
            told.content += delta["text"]
        case "thinking_delta":
            told.thinking += delta["thinking"]
        case _:
            name, arguments = told.calls[-1]
            told.calls[-1] = name, arguments + delta["partial_json"]
    assert delta["type"] in (_DELTAS[block], "signature_delta"), "a delta fits its block"


_READERS = {
    "/v1/chat/completions": (_chat, _chat_stream),
    "/v1/responses": (_response, _response_stream),
    "/v1/messages": (_message, _message_stream),
}
