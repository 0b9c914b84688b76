"""The documentation says what it must, and its links and commands lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tensorfold.cli.early import take_early
from tensorfold.cli.program import run
from tensorfold.config import core_table


@pytest.mark.requirement("T-031")
def test_the_documentation_advises_a_restricted_file_over_keys_on_the_command_line(root: Path) -> None:
    """The documentation advises a restricted key file over command-line keys, which show in the process list."""
    page = " ".join((root / "docs" / "api" / "authentication.md").read_text(encoding="utf-8").split())
    advice = page.index("**Prefer the file**")
    assert "chmod 600" in page[advice:]
    assert "Keys on the command line show in the process list" in page[advice:]
    assert "docs/api/authentication.md" in (root / "README.md").read_text(encoding="utf-8")


@pytest.mark.requirement("T-264", "T-288", "T-295")
def test_the_documentation_says_what_numbers_and_repeats_mean(root: Path) -> None:
    """A start-up estimate is no measured capacity, rates begin with the second sample, and how repeats get independent."""
    page = " ".join((root / "docs" / "serving.md").read_text(encoding="utf-8").split())
    assert "an estimate of capacity and not a measured one" in page
    assert "the first sample is a baseline, rates begin with the second" in page
    assert "For independent repeats, send a seed with each run" in page and "`TENSORFOLD_SEED_SALT`" in page


@pytest.mark.requirement("Y-201")
def test_no_setting_turns_authentication_off() -> None:
    """There is no switch that turns checks off: without keys every route is open, with keys they are asked for."""
    launch, _ = take_early([], {})
    names = {setting.name for table in (core_table(), *launch.tables) for setting in table.settings}
    assert not {name for name in names if "disable" in name or "auth" in name}
    assert run(["serve", "--disable-auth"], {}) == 2


@pytest.mark.requirement("Y-083")
def test_the_documentation_says_that_probabilities_are_not_calibrated(root: Path) -> None:
    """Documented: the probabilities of decisions are not calibrated."""
    assert "not calibrated" in (root / "docs" / "api" / "decisions.md").read_text(encoding="utf-8")


def test_every_link_between_pages_leads_to_a_file(root: Path) -> None:
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    assert len(pages) > 8
    for page in pages:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_flag_that_a_page_names_exists(root: Path) -> None:
    shown = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    known = set(re.findall(r"--[a-z][a-z-]+", shown)) | {"--config", "--no-deps", "--check"}
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page.read_text(encoding="utf-8")))
        assert named <= known | {"--name"}, page.name


def test_every_folder_of_the_core_has_its_line_in_the_structure(root: Path) -> None:
    page = (root / "docs" / "structure.md").read_text(encoding="utf-8")
    core = root / "core" / "tensorfold"
    folders = [path for path in core.iterdir() if (path / "__init__.py").is_file()]
    assert folders
    for folder in folders:
        assert f"`core/tensorfold/{folder.name}/`" in page, folder.name
    for kind in (root / "plugins").iterdir():
        assert f"`plugins/{kind.name}/`" in page, kind.name
