"""Calls between `<tool_call>` marks, in XML and in JSON."""

from __future__ import annotations

from typing import Final

from tensorfold.testing.golden.reply import PARIS_CALL, ROME_CALL, Golden
from tensorfold.testing.golden.texts import OPEN

__all__ = ["HERMES", "NEMOTRON", "TAGGED"]


def _xml(name: str, **values: str) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


PARIS = _xml("get_weather", city="Paris")
ROME = _xml("get_weather", city="Rome")

TAGGED: Final = (
    Golden(name="a call behind prose", text=f"Checking.\n{PARIS}", content="Checking.", calls=(PARIS_CALL,)),
    Golden(name="a call and a blank", text=f"\n\n{PARIS}\n", calls=(PARIS_CALL,)),
    Golden(name="two calls", text=f"{PARIS}\n{ROME}", calls=(PARIS_CALL, ROME_CALL)),
    Golden(name="text behind a call", text=f"a\n\n{PARIS}\nb", content="a\n\n\nb", calls=(PARIS_CALL,)),
    Golden(name="no arguments", text=_xml("now"), calls=(("now", {}),)),
    Golden(
        name="values of every type",
        text=_xml("book", city='Paris "x"\nline2', count="3", opts='{"vip": true, "n": [1.5]}', tags='["a", "b c"]'),
        calls=(
            (
                "book",
                {"city": 'Paris "x"\nline2', "count": 3, "opts": {"vip": True, "n": [1.5]}, "tags": ["a", "b c"]},
            ),
        ),
    ),
    Golden(
        name="strings that look like numbers",
        text=_xml("put", zip="02134", code="1e5", flag="true", n="2134"),
        calls=(("put", {"zip": "02134", "code": "1e5", "flag": "true", "n": 2134}),),
    ),
    Golden(
        name="numbers and booleans",
        text=_xml("run", timeout="30", ratio="0.5", all="False"),
        calls=(("run", {"timeout": 30, "ratio": 0.5, "all": False}),),
    ),
    Golden(
        name="values of another type",
        text=_xml("run", timeout="soon", ratio="NaN", all="yes"),
        calls=(("run", {"timeout": "soon", "ratio": "NaN", "all": "yes"}),),
    ),
    Golden(
        name="null and objects in strings",
        text=_xml("f", a="null", b='{"k":1}', c='{"k":1}', d="null"),
        calls=(("f", {"a": "null", "b": '{"k":1}', "c": {"k": 1}, "d": None}),),
    ),
    Golden(
        name="unions and references are texts",
        text=_xml("f", u="3", r="4", unknown="5"),
        calls=(("f", {"u": "3", "r": "4", "unknown": "5"}),),
    ),
    Golden(name="a bracket short", text=_xml("f", c='{"a":[1,2]'), calls=(("f", {"c": {"a": [1, 2]}}),)),
    Golden(name="more than a bracket short", text=_xml("f", c='{"a":[1,'), calls=(("f", {"c": '{"a":[1,'}),)),
    Golden(name="an integer with a fraction", text=_xml("put", n="3.0"), calls=(("put", {"n": 3}),)),
    Golden(name="an empty text", text=_xml("get_weather", city=""), calls=(("get_weather", {"city": ""}),)),
    Golden(
        name="blanks in a text",
        text=_xml("write_file", content="\n  a\n\n"),
        calls=(("write_file", {"content": "\n  a\n\n"}),),
    ),
    Golden(
        name="a value on one line",
        text="<tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>",
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="marks within a value",
        text=_xml("write_file", content="use <think>x</think>, </parameter>, </function> and </tool_call> <tool_call>"),
        calls=(
            ("write_file", {"content": "use <think>x</think>, </parameter>, </function> and </tool_call> <tool_call>"}),
        ),
    ),
    Golden(name="any letters", text=_xml("get_weather", city="北京 🌧"), calls=(("get_weather", {"city": "北京 🌧"}),)),
    Golden(
        name="cut within a value",
        text="<tool_call>\n<function=get_weather>\n<parameter=city>\nPar",
        calls=(("get_weather", '{"city": "Par'),),
        broken=True,
    ),
    Golden(
        name="cut behind a value",
        text="<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n",
        calls=(("get_weather", '{"city": "Paris"'),),
        broken=True,
    ),
    Golden(
        name="cut behind the function",
        text="<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>",
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="cut within the name",
        text="<tool_call>\n<function=get_wea",
        content="<tool_call>\n<function=get_wea",
    ),
    Golden(
        name="a function that was not offered",
        text=f"a {_xml('rm_rf', path='/')} b",
        content=f"a {_xml('rm_rf', path='/')} b",
    ),
    Golden(
        name="a call quoted in a function that was not offered",
        text=f"<tool_call>\n<function=rm_rf>\n<parameter=path>\n<tool_call>\n<function=now>\n</function>\n{ROME}",
        content="<tool_call>\n<function=rm_rf>\n<parameter=path>\n<tool_call>\n<function=now>\n</function>\n" + ROME,
    ),
    Golden(name="an opener in prose", text="see <tool_call> in the docs", content="see <tool_call> in the docs"),
    Golden(name="an opener before a call", text=f"<tool_call>{PARIS}", content="<tool_call>", calls=(PARIS_CALL,)),
    Golden(name="an empty block", text="<tool_call></tool_call>", content="<tool_call></tool_call>"),
    Golden(name="no JSON", text="<tool_call>\nnot json\n</tool_call>", content="<tool_call>\nnot json\n</tool_call>"),
    Golden(
        name="a name that is none",
        text='<tool_call>\n{"name": 5}\n</tool_call>',
        content='<tool_call>\n{"name": 5}\n</tool_call>',
    ),
    Golden(name="a structured answer", text='{"answer": 4}', content='{"answer": 4}'),
    Golden(
        name="in JSON",
        text='<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="in JSON, the closer within a text",
        text='<tool_call>\n{"name":"write_file","arguments":{"content":"a </tool_call> tag"}}\n</tool_call>',
        calls=(("write_file", {"content": "a </tool_call> tag"}),),
    ),
    Golden(name="in JSON without arguments", text='<tool_call>\n{"name":"ping"}\n</tool_call>', calls=(("ping", {}),)),
    Golden(
        name="in JSON, arguments first",
        text='<tool_call>{"arguments": {"city": "Paris"}, "id": 7, "name": "get_weather"}</tool_call> x',
        content=" x",
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="in JSON, arguments as a text",
        text='<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="in JSON, line breaks within a text",
        text='<tool_call>{"name": "write_file", "arguments": {"content": "a\n\tb"}}</tool_call>',
        calls=(("write_file", {"content": "a\n\tb"}),),
    ),
    Golden(
        name="in JSON, more keys behind the arguments",
        text='<tool_call>{"name": "now", "arguments": {}, "id": "1"}</tool_call>',
        calls=(("now", {}),),
    ),
    Golden(
        name="in JSON, broken within the arguments",
        text='<tool_call>{"name": "get_weather", "arguments": {"city": Paris}}</tool_call> done',
        content=" done",
        calls=(("get_weather", '{"city": '),),
        broken=True,
    ),
    Golden(
        name="in JSON, not offered",
        text='<tool_call>{"name": "rm_rf", "arguments": {}}</tool_call>',
        content='<tool_call>{"name": "rm_rf", "arguments": {}}</tool_call>',
    ),
    Golden(
        name="a rehearsed call",
        text=f"<think>\nI could write {PARIS} but Rome is meant.\n</think>\n\n{ROME}",
        thinking=f"I could write {PARIS} but Rome is meant.",
        calls=(ROME_CALL,),
    ),
    Golden(
        name="a call in reasoning that never ends",
        prompt=OPEN,
        text=f"I need the weather.\n{PARIS}",
        thinking="I need the weather.",
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="two calls in reasoning that never ends",
        prompt=OPEN,
        text=f"Hm, <tool_call> it is.\n{PARIS}\n{ROME}",
        thinking="Hm, <tool_call> it is.",
        calls=(PARIS_CALL, ROME_CALL),
    ),
    Golden(
        name="half a call in reasoning that never ends",
        prompt=OPEN,
        text="Hm.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nPa",
        thinking="Hm.",
        calls=(("get_weather", '{"city": "Pa'),),
        broken=True,
    ),
    Golden(
        name="a function that was not offered, in reasoning",
        prompt=OPEN,
        text=f"{_xml('rm_rf', path='/')}\n</think>\n\nno",
        thinking=_xml("rm_rf", path="/"),
        content="no",
    ),
)
"""Of formats with `<tool_call>` around XML or JSON."""

NEMOTRON: Final = (
    Golden(
        name="glue without blank lines",
        prompt=OPEN,
        text=f"R1</think>ok\n{PARIS}\n{ROME}\n",
        thinking="R1",
        content="ok",
        calls=(PARIS_CALL, ROME_CALL),
    ),
    Golden(
        name="Python's spelling",
        text=_xml("run", all="True", timeout="1.5") + "\n" + _xml("f", d="None") + "\n",
        calls=(("run", {"all": True, "timeout": 1.5}), ("f", {"d": None})),
    ),
)

HERMES: Final = (
    Golden(
        name="a reply that is a call",
        text='{"name": "get_weather", "parameters": {"city": "Paris"}}',
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="a reply that is another object",
        text='{"name": "Anna", "parameters": {"city": "Paris"}}',
        content='{"name": "Anna", "parameters": {"city": "Paris"}}',
    ),
    Golden(name="a reply that is half an object", text='{"name": "get_w', content='{"name": "get_w'),
)
