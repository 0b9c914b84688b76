"""Writes the parts of the documentation that come from the code; with `--check` only tells which are out of date."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import cli_doc
import hooks_doc
import requirements
import settings_doc

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_doc.document,
    "hooks.md": hooks_doc.document,
    "requirements.md": requirements.document,
    "settings.md": settings_doc.document,
}


def main(check: bool) -> int:
    """Write or compare every page; 1 when a compared one differs."""
    stale: list[str] = []
    for name, document in PAGES.items():
        path, text = DOCS / name, document()
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        print(f"docs/{name} {'is out of date: run python tools/generate_docs.py' if check else 'is written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
