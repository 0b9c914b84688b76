"""Code in the docs that is said to come from a file does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- (?P<file>\S+) -->\n```\w+\n(?P<code>.*?)\n```", re.DOTALL)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_blocks_that_name_a_file_are_lines_of_it(page: Path) -> None:
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        text = (ROOT / match["file"]).read_text(encoding="utf-8")
        assert f"\n{match['code']}\n" in f"\n{text}\n", f"{page.name} shows lines that {match['file']} does not have"


def test_the_walk_through_of_a_family_shows_every_file_of_it() -> None:
    """And nothing but its lines: no block is without a file."""
    page = (ROOT / "docs" / "writing-a-model.md").read_text(encoding="utf-8")
    shown = {match["file"] for match in BLOCK.finditer(page)}
    folder = ROOT / "tests" / "acme" / "src" / "tensorfold_acme" / "granite"
    assert {file.relative_to(ROOT).as_posix() for file in folder.glob("*.py")} <= shown
    assert page.count("```") == 2 * len(list(BLOCK.finditer(page)))
