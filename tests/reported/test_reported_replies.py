"""Replies that public reports say go wrong: in every dialect, whole and streamed, drafted and serial, the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tensorfold.testing.told import WAYS, Told, body_for, told

from .asking import CHAT, USER, WEATHER, Says

OFF: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": False}}


def tool(name: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **({"parameters": parameters} if parameters else {})}}


def object_of(**types: str) -> dict[str, Any]:
    properties = {name: {"type": type} for name, type in types.items()}
    return {"type": "object", "properties": properties, "required": list(types)}


def call(name: str, **parameters: str) -> str:
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters.items())
    return f"<tool_call>\n<function={name}>\n{written}</function>\n</tool_call>"


WRITE = tool("write_file", object_of(content="string"))
PARIS, ROME = call("get_weather", city="Paris"), call("get_weather", city="Rome")


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A reply, and what it is."""

    reply: str
    tools: tuple[dict[str, Any], ...] = (WEATHER,)
    content: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    fields: dict[str, Any] | None = None
    """More of the request; None: thinking is off."""
    reason: str | None = None
    """None: `tool_calls` if there are calls, else `end`."""


def paris(name: str = "get_weather") -> tuple[tuple[str, Any], ...]:
    return ((name, {"city": "Paris"}),)


REHEARSED = f"I could write {PARIS} but Rome is meant."
JSON_CALL = '<tool_call>\n{"name":"write_file","arguments":{"content":"a </tool_call> tag"}}\n</tool_call>'
TYPED = object_of(zip="string", code="string", flag="string", n="integer")
NUMBERS = object_of(timeout="number", ratio="number", all="boolean")
NULLS = object_of(a="string", b="string", c="object", d="null")
C_CODE = "".join(f"if (a{n} < \"b\\n\" && c > '{n * n}') {{ /* <tags> & {n * 7919} */ }}\n" for n in range(40))
"""2,000 characters, no two lines alike."""

REPLIES: dict[str, Reported] = {
    "TC-01 an opener in pieces": Reported(reply=f"Checking.\n{PARIS}", content="Checking.", calls=paris()),
    "TC-05 an argument that quotes the closer": Reported(
        reply=JSON_CALL, tools=(WRITE,), calls=(("write_file", {"content": "a </tool_call> tag"}),)
    ),
    "TC-06 texts that look like numbers": Reported(
        reply=call("put", zip="02134", code="1e5", flag="true", n="2134"),
        tools=(tool("put", TYPED),),
        calls=(("put", {"zip": "02134", "code": "1e5", "flag": "true", "n": 2134}),),
    ),
    "TC-07 numbers and booleans": Reported(
        reply=call("run", timeout="30", ratio="0.5", all="false"),
        tools=(tool("run", NUMBERS),),
        calls=(("run", {"timeout": 30, "ratio": 0.5, "all": False}),),
    ),
    "TC-08 texts that look like null and objects": Reported(
        reply=call("f", a="null", b='{"k":1}', c='{"k":1}', d="null"),
        tools=(tool("f", NULLS),),
        calls=(("f", {"a": "null", "b": '{"k":1}', "c": {"k": 1}, "d": None}),),
    ),
    "TC-09 a function that was not offered": Reported(reply=call("rm_rf", path="/"), content=call("rm_rf", path="/")),
    "TC-10 letters of other scripts": Reported(
        reply=call("get_weather", city="北京 🌧"), calls=(("get_weather", {"city": "北京 🌧"}),)
    ),
    "TC-12 two calls": Reported(reply=f"{PARIS}\n{ROME}", calls=(*paris(), ("get_weather", {"city": "Rome"}))),
    "TC-16, TC-35 a call alone": Reported(reply=PARIS, calls=paris()),
    "TC-19 a rehearsed call": Reported(
        reply=f"{REHEARSED}\n</think>\n\n{ROME}",
        thinking=REHEARSED,
        calls=(("get_weather", {"city": "Rome"}),),
        fields={},
    ),
    "TC-21 a call before the reasoning is closed": Reported(
        reply=f"I need the weather.\n{PARIS}", thinking="I need the weather.", calls=paris(), fields={}
    ),
    "TC-22 a think mark within an argument": Reported(
        reply=call("write_file", content="use <think>x</think> here"),
        tools=(WRITE,),
        calls=(("write_file", {"content": "use <think>x</think> here"}),),
    ),
    "TC-23 text without thinking": Reported(reply="Hello.", content="Hello."),
    "TC-28 a bracket that is missing": Reported(
        reply=call("f", o='{"a":[1,2]'), tools=(tool("f", object_of(o="object")),), calls=(("f", {"o": {"a": [1, 2]}}),)
    ),
    "TC-28 more than a bracket is missing": Reported(
        reply=call("f", o='{"a":[1,'), tools=(tool("f", object_of(o="object")),), calls=(("f", {"o": '{"a":[1,'}),)
    ),
    "TC-29 JSON": Reported(reply='{"answer": 4}', content='{"answer": 4}'),
    "TC-29 no JSON": Reported(
        reply="<tool_call>\nnot json\n</tool_call>", content="<tool_call>\nnot json\n</tool_call>"
    ),
    "TC-29 no name": Reported(
        reply='<tool_call>\n{"name": 5}\n</tool_call>', content='<tool_call>\n{"name": 5}\n</tool_call>'
    ),
    "TC-29 nothing": Reported(reply="<tool_call></tool_call>", content="<tool_call></tool_call>"),
    "TC-29 a mention": Reported(reply="see <tool_call> in the docs", content="see <tool_call> in the docs"),
    "TC-30 one call at most": Reported(
        reply=f"Sure.\n{PARIS}\n{ROME}",
        content="Sure.",
        calls=paris(),
        fields={**OFF, "parallel_tool_calls": False},
    ),
    "TC-32 no parameters": Reported(
        reply=call("now"), tools=(tool("now", object_of()), tool("ping", object_of())), calls=(("now", {}),)
    ),
    "TC-32 no parameters, as JSON": Reported(
        reply='<tool_call>\n{"name":"ping"}\n</tool_call>',
        tools=(tool("now", object_of()), tool("ping", object_of())),
        calls=(("ping", {}),),
    ),
    "TC-34 a long argument": Reported(
        reply=call("echo", input=C_CODE[:500]),
        tools=(tool("echo", object_of(input="string")),),
        calls=(("echo", {"input": C_CODE[:500]}),),
    ),
    "TC-17 an answer behind a result": Reported(reply="It is sunny.", content="It is sunny."),
    "RE-01 reasoning that is cut": Reported(
        reply="Let me think about", thinking="Let me think about", fields={"max_tokens": 18}, reason="length", tools=()
    ),
    "RE-02 a closer in pieces": Reported(reply="why</think>\n\n42", thinking="why", content="42", fields={}, tools=()),
    "RE-06 reasoning, then an answer": Reported(
        reply="four\n</think>\n\n4", thinking="four", content="4", fields={}, tools=()
    ),
    "AM-07 a stop sequence": Reported(
        reply="one two END three", content="one two ", fields={**OFF, "stop": ["END"]}, tools=()
    ),
    "ST-02 a stop sequence that never comes whole": Reported(
        reply="one two EN", content="one two EN", fields={**OFF, "stop": ["END"]}, tools=()
    ),
}


def asked(case: Reported) -> dict[str, Any]:
    fields = OFF if case.fields is None else case.fields
    return {"messages": [USER], "temperature": 0, **({"tools": list(case.tools)} if case.tools else {}), **fields}


@pytest.mark.requirement("T-310", "T-311", "T-312", "T-360")
@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_the_same_on_every_way(says: Says, name: str) -> None:
    """Chat, Responses and Messages, whole and streamed, drafted and serial: one reply, one `token_sha`, one usage."""
    case = REPLIES[name]
    server = says(case.reply)
    found: list[tuple[object, Told]] = []
    for path, stream in WAYS:
        found.append(((path, stream), told(server, path, asked(case), stream=stream)))
    serial = {**asked(case), "draft": False}
    found.append((("serial",), told(server, WAYS[0][0], serial, stream=False)))
    first = found[0][1]
    assert (first.content.strip() if first.calls else first.content) == case.content
    assert first.thinking == case.thinking
    assert tuple(first.arguments) == case.calls
    assert first.reason == (case.reason or ("tool_calls" if case.calls else "end"))
    for way, each in found[1:]:
        assert each.same == first.same, way
        assert len(set(each.ids)) == len(each.ids) == len(case.calls), way
        assert all(each.ids), way
    assert len(set(server.prompts)) == 1, "every dialect renders the same prompt"


def test_arguments_are_not_spelled_in_ascii(says: Says) -> None:
    """TC-10: as the model wrote them."""
    server = says(call("get_weather", city="北京 🌧"))
    body = {"messages": [USER], "tools": [WEATHER], **OFF}
    for path, stream in WAYS:
        text = server.post(path, {**body_for(path, body), "stream": stream}).text
        assert "北京" in text or stream, path
        assert "\\u5317" not in text


@pytest.mark.requirement("T-185")
def test_a_long_argument_comes_while_it_is_written(says: Says) -> None:
    """TC-34: in many pieces, in every dialect."""
    server = says(call("echo", input=C_CODE))
    body = {"messages": [USER], "tools": [tool("echo", object_of(input="string"))], **OFF}
    for path, mark in (
        ("/v1/chat/completions", '"arguments"'),
        ("/v1/responses", '"response.function_call_arguments.delta"'),
        ("/v1/messages", '"input_json_delta"'),
    ):
        text = server.post(path, {**body_for(path, body), "stream": True}).text
        assert text.count(mark) >= 10, path


def test_a_call_that_is_cut_is_never_a_finished_one(says: Says) -> None:
    """TC-03: wherever the limit falls, in every dialect, whole and streamed."""
    server = says(call("save", text="word " * 20))
    chat = {"messages": [USER], "tools": [tool("save", object_of(text="string"))], "tool_choice": "required", **OFF}
    for most in (8, 16, 24, 32, 80, 120):
        ways = [told(server, path, {**chat, "max_tokens": most}, stream=stream) for path, stream in WAYS]
        assert {way.reason for way in ways} == {"length"}, most
        assert len({way.sha for way in ways}) == 1
        for way in ways:
            for name, arguments in way.calls:
                assert name == "save"
                with pytest.raises(ValueError, match=r"\w"):
                    json.loads(arguments or "x")


@pytest.mark.parametrize("budget", [1, 2, 4, 8, 10, 20, 40, 60, 90])
def test_a_budget_never_cuts_into_a_call(says: Says, budget: int) -> None:
    """TB-01: the reasoning is closed before a call's markup, or the call is whole."""
    server = says(f"Need it.\n{PARIS}")
    chat = {"messages": [USER], "tools": [WEATHER], "thinking_budget": budget, "temperature": 0}
    chats = [
        told(server, "/v1/chat/completions", {**chat, "draft": draft}, stream=stream)
        for draft in (True, False)
        for stream in (True, False)
    ]
    for each in chats:
        assert each.same == chats[0].same
        assert "think>" not in each.thinking
        for _, arguments in each.calls:
            assert "think>" not in arguments
            if each.reason == "tool_calls":
                assert json.loads(arguments) == {"city": "Paris"}
        assert each.reason != "tool_calls" or each.calls


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"warehouse/north-region/building-7/aisle-12/shelf-number-item-{n}\n" for n in range(1, 101)),
        "".join(f"| a | b | {n} | rows\n" for n in range(40)),
        "-" * 600,
    ],
    ids=["long prefixes", "a table", "a rule"],
)
def test_a_list_is_no_loop(says: Says, text: str) -> None:
    """LD-01: a long one with equal beginnings, of 6,400 tokens here, ends where the model ends it."""
    server = says(text)
    chat = {"messages": [USER], "chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 7_000}
    answer = told(server, CHAT, chat, stream=False)
    assert (answer.reason, answer.content) == ("end", text)
