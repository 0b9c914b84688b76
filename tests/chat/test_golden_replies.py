"""Every golden reply of every format, however it is cut."""

from __future__ import annotations

import pytest

from tensorfold.testing.golden import FORMATS, GOLDEN, TOOLS, Golden
from tensorfold.testing.parsed_replies import cuts, parsed, request_with

CASES = [
    pytest.param(FORMATS[name], golden, id=f"{name}: {golden.name}")
    for name, table in GOLDEN.items()
    for golden in table
]


@pytest.mark.requirement("T-175", "T-176", "T-177", "T-178", "T-181", "T-187", "T-188", "T-190", "T-198")
@pytest.mark.parametrize(("format", "golden"), CASES)
def test_a_reply_is_the_same_however_it_is_cut(format: object, golden: Golden) -> None:
    """Content, reasoning and calls of every format's golden texts, whole, a character at a time, and cut anywhere."""
    for parts in cuts(golden.text):
        found = parsed(format, request_with(TOOLS), golden.prompt, parts)  # type: ignore[arg-type]
        expected = (golden.content, golden.thinking, list(golden.calls), golden.broken)
        assert (found.content, found.thinking, found.arguments, found.broken) == expected, parts
