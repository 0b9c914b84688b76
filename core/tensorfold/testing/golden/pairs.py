"""Calls as pairs of keys and values."""

from __future__ import annotations

from typing import Final

from tensorfold.testing.golden.reply import PARIS_CALL, Golden

__all__ = ["GLM"]


def _pairs(name: str, **values: str) -> str:
    pairs = (f"<arg_key>{key}</arg_key><arg_value>{value}</arg_value>" for key, value in values.items())
    return f"<tool_call>{name}{''.join(pairs)}</tool_call>"


GLM: Final = (
    Golden(
        name="glue without blanks",
        prompt="<|assistant|><think>",
        text=f"R1</think>ok{_pairs('get_weather', city='Paris')}{_pairs('now')}",
        thinking="R1",
        content="ok",
        calls=(PARIS_CALL, ("now", {})),
    ),
    Golden(
        name="values of every type",
        text=_pairs("book", city='Paris "x"\nline2', count="3", opts='{"vip": true, "n": [1.5]}', tags='["a", "b c"]'),
        calls=(
            (
                "book",
                {"city": 'Paris "x"\nline2', "count": 3, "opts": {"vip": True, "n": [1.5]}, "tags": ["a", "b c"]},
            ),
        ),
    ),
    Golden(
        name="on lines of their own, as earlier models write",
        text="<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="strings keep their line breaks",
        text=_pairs("write_file", content="\na\n"),
        calls=(("write_file", {"content": "\na\n"}),),
    ),
    Golden(
        name="marks within a value",
        text=_pairs("write_file", content="</arg_value> and </tool_call>"),
        calls=(("write_file", {"content": "</arg_value> and </tool_call>"}),),
    ),
    Golden(name="prose in a block", text="<tool_call> in the docs", content="<tool_call> in the docs"),
    Golden(name="not offered", text=_pairs("rm_rf", path="/"), content=_pairs("rm_rf", path="/")),
    Golden(
        name="cut within a value",
        text="<tool_call>get_weather<arg_key>city</arg_key><arg_value>Par",
        calls=(("get_weather", '{"city": "Par'),),
        broken=True,
    ),
    Golden(name="cut within the name", text="<tool_call>get_wea", content="<tool_call>get_wea"),
    Golden(
        name="a call in reasoning that never ends",
        prompt="<think>",
        text=f"Hm.\n{_pairs('get_weather', city='Paris')}",
        thinking="Hm.",
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="a rehearsed call",
        prompt="<think>",
        text=f"Maybe {_pairs('get_weather', city='Paris')}?</think>No.",
        thinking=f"Maybe {_pairs('get_weather', city='Paris')}?",
        content="No.",
    ),
)
