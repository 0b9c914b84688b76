"""Gemma's channels and calls."""

from __future__ import annotations

from typing import Final

from tensorfold.testing.golden.reply import PARIS_CALL, Golden

__all__ = ["GEMMA"]

_G_PARIS = '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>'

GEMMA: Final = (
    Golden(name="a call", text=f"ok{_G_PARIS}", content="ok", calls=(PARIS_CALL,)),
    Golden(
        name="reasoning and two calls",
        text=f"<|channel>thought\nR1\n<channel|>{_G_PARIS}<|tool_call>call:now{{}}<tool_call|>",
        thinking="R1",
        calls=(PARIS_CALL, ("now", {})),
    ),
    Golden(
        name="reasoning opened by the prompt",
        prompt="<|channel>thought\n",
        text="R1\n<channel|>yes",
        thinking="R1",
        content="yes",
    ),
    Golden(name="empty reasoning", text="<|channel>thought\n<channel|>yes", content="yes"),
    Golden(name="reasoning again", text="a<|channel>thought\nb\n<channel|>c", thinking="b", content="ac"),
    Golden(
        name="values of every type",
        text=(
            '<|tool_call>call:book{city:<|"|>Paris "x"\nline2<|"|>,count:3,'
            'opts:{n:1.5,none:null,vip:true,<|"|>a:b<|"|>:[1]},tags:[<|"|>a<|"|>,<|"|>b c<|"|>,{x:1}]}<tool_call|>'
        ),
        calls=(
            (
                "book",
                {
                    "city": 'Paris "x"\nline2',
                    "count": 3,
                    "opts": {"n": 1.5, "none": None, "vip": True, "a:b": [1]},
                    "tags": ["a", "b c", {"x": 1}],
                },
            ),
        ),
    ),
    Golden(
        name="a text without quotes",
        text="<|tool_call>call:get_weather{city:New York}<tool_call|>",
        calls=(("get_weather", {"city": "New York"}),),
    ),
    Golden(
        name="brackets within a text",
        text='<|tool_call>call:write_file{content:<|"|>}<tool_call|>,{<|"|>}<tool_call|>',
        calls=(("write_file", {"content": "}<tool_call|>,{"}),),
    ),
    Golden(
        name="no closer: the turn ends where the result begins",
        text='<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}',
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="cut within a text",
        text='<|tool_call>call:get_weather{city:<|"|>Par',
        calls=(("get_weather", '{"city": "Par'),),
        broken=True,
    ),
    Golden(name="cut within the name", text="<|tool_call>call:get_wea", content="<|tool_call>call:get_wea"),
    Golden(
        name="not offered",
        text='<|tool_call>call:rm_rf{path:<|"|>/<|"|>}<tool_call|>',
        content='<|tool_call>call:rm_rf{path:<|"|>/<|"|>}<tool_call|>',
    ),
    Golden(name="no call", text="<|tool_call>hello<tool_call|>", content="<|tool_call>hello<tool_call|>"),
    Golden(
        name="a call in reasoning that never ends",
        text=f"<|channel>thought\nHm.\n{_G_PARIS}",
        thinking="Hm.",
        calls=(PARIS_CALL,),
    ),
    Golden(
        name="a rehearsed call",
        text=f"<|channel>thought\nMaybe {_G_PARIS}\n<channel|>No.",
        thinking=f"Maybe {_G_PARIS}",
        content="No.",
    ),
)
