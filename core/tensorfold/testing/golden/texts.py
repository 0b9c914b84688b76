"""Replies without calls."""

from __future__ import annotations

from typing import Final

from tensorfold.testing.golden.reply import Golden

__all__ = ["OPEN", "TEXTS", "THINKING"]

OPEN = "<|im_start|>assistant\n<think>\n"
CLOSED = "<|im_start|>assistant\n<think>\n\n</think>\n\n"

TEXTS: Final = (
    Golden(name="nothing", text=""),
    Golden(name="prose", text="Hello.", content="Hello."),
    Golden(name="white space is prose", text=" \n\n ", content=" \n\n "),
    Golden(name="prose with blanks around", text="\n a \n\n", content="\n a \n\n"),
    Golden(name="a comparison", text="a < b and <b>c</b> <tool", content="a < b and <b>c</b> <tool"),
    Golden(name="no special marks", text="</think> </tool_call>", content="</think> </tool_call>"),
)
"""The same in every format that has none of these marks in it."""

THINKING: Final = (
    Golden(name="opened by the prompt", prompt=OPEN, text="why\n</think>\n\n42", thinking="why", content="42"),
    Golden(name="opened by the reply", text="<think>\nwhy\n</think>\n\n42", thinking="why", content="42"),
    Golden(name="opened behind blanks", text="\n<think>why</think>42", thinking="why", content="42"),
    Golden(name="not opened", prompt=CLOSED, text="Hello.", content="Hello."),
    Golden(name="cut while thinking", prompt=OPEN, text="Let me think about", thinking="Let me think about"),
    Golden(name="cut within the end", prompt=OPEN, text="why</thi", thinking="why</thi"),
    Golden(name="empty", prompt=OPEN, text="\n</think>\n\nyes", content="yes"),
    Golden(name="closed twice", prompt=OPEN, text="a</think>b</think>c", thinking="a", content="b</think>c"),
    Golden(name="a mark within the text", text="Use <think>x</think>.", content="Use <think>x</think>."),
    Golden(
        name="blank lines go, indentation stays",
        prompt=OPEN,
        text="\n\n  a\n b \n \n</think>\n \n  code\n ",
        thinking="  a\n b",
        content="  code\n ",
    ),
    Golden(name="long blanks within", prompt=OPEN, text="a" + " " * 300 + "b", thinking="a" + " " * 300 + "b"),
)
"""Of every format with `<think>`."""
