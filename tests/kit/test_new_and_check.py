"""`tensorfold new` and `tensorfold check`: from nothing to a plugin that keeps its contract."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tensorfold.cli.new.writing import KINDS, write_plugin
from tensorfold.cli.program import run
from tensorfold.errors import ConfigError

BROKEN = """
from collections.abc import Iterable

import msgspec

from tensorfold import hookimpl
from tensorfold.contracts.examples import DialectExample
from tensorfold.contracts.settings import Setting, SettingsTable
from tensorfold.testing.plain_dialect import PATH, plain_dialect


class Forgetful:
    name = "forgetful"

    def admit(self, request, load):
        raise ValueError("no")

    def order(self, waiting):
        return waiting[1:]

    def victim(self, running, wanting):
        return None


@hookimpl
def tensorfold_settings():
    yield SettingsTable("extras.broken", (Setting(name="x", type="str", help="no full stop"),))


@hookimpl
def tensorfold_dialects(settings):
    yield plain_dialect()


@hookimpl
def tensorfold_scheduler_policies(settings):
    yield Forgetful()


@hookimpl
def tensorfold_examples():
    yield DialectExample(dialect="plain", bodies={PATH: b'{"prompt": 7}'})
"""


def check(plugin: str) -> tuple[int, str]:
    """The program's exit code, and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "tensorfold", "check", plugin], capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_contract_as_it_is(kind: str, tmp_path: Path) -> None:
    assert run(["new", kind, "quokka", "--into", str(tmp_path)], {}) == 0
    (folder,) = tmp_path.iterdir()
    code, said = check(str(folder))
    assert code == 0, said
    assert "FAILS" not in said
    claims, _, every = said.strip().splitlines()[-1].partition(" of ")
    assert int(claims) > 10
    assert every == f"{claims} claims hold"


def test_an_installed_plugin_is_tried_by_its_name() -> None:
    code, said = check("auth/keys")
    assert code == 0, said
    assert "auth source keys" in said.splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_can_be_built_and_holds_no_mark_of_its_template(kind: str, tmp_path: Path) -> None:
    """As a wheel with its module; with tests of its own, and a README that names every file."""
    folder = write_plugin(kind, "two_words", tmp_path).folder
    assert folder.name == f"tensorfold-{kind}-two-words"
    texts = {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert not [
        path
        for path, text in texts.items()
        if "@"
        in text.replace("@hookimpl", "").replace("@dataclass", "").replace("@property", "").replace("@pytest", "")
    ]
    readme = texts[Path("README.md")]
    assert all(path.name in readme for path in texts if path.suffix == ".py" and path.parent.name != "tests")
    assert any(path.parent.name == "tests" for path in texts)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=folder, check=True, capture_output=True
    )
    assert (folder / "dist" / f"tensorfold_{kind}_two_words-0.1.0-py3-none-any.whl").is_file()


def test_a_plugin_of_a_folder_is_listed_with_its_distribution(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_plugin("auth", "listed", tmp_path).folder
    assert run(["plugins", "--json", "--plugin", str(folder)], {}) == 0
    listed = {(each["kind"], each["name"]): each for each in json.loads(capsys.readouterr().out)}
    mine = listed["auth", "listed"]
    assert (mine["distribution"], mine["version"], mine["state"]) == ("tensorfold-auth-listed", "0.1.0", "loaded")


@pytest.mark.parametrize("name", ["Quokka", "1st", "a-b", "class", "", "a" * 40, "../x"])
def test_a_name_that_no_package_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no name for a plugin"):
        write_plugin("dialect", name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_plugin("dialect", "quokka", tmp_path).folder
    (folder / "README.md").write_text("mine")
    assert run(["new", "dialect", "quokka", "--into", str(tmp_path)], {}) == 2
    assert "is there already" in capsys.readouterr().err
    assert (folder / "README.md").read_text() == "mine"


def test_a_claim_that_does_not_hold_comes_with_what_to_do(tmp_path: Path) -> None:
    """One line a claim, the cases that fail by name, what is meant, what to do, and exit code 1."""
    plugin = tmp_path / "broken.py"
    plugin.write_text(BROKEN)
    code, said = check(str(plugin))
    assert code == 1
    lines = said.strip().splitlines()
    assert lines[0] == "the plugin"
    assert "  FAILS  its settings are described" in lines
    assert "dialect plain" in lines
    assert "  FAILS  bodies are read as what they ask for" in lines
    at = lines.index("  FAILS  an order is a permutation of those who wait")
    assert (
        "         to do: return every object of `waiting` once, for instance with `sorted(waiting, key=...)`."
        in lines[at:]
    )
    assert "  ok     it has a name" in lines
    assert lines[-1].endswith(" claims hold")


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        ("a_module_that_is_not_there", "cannot be loaded"),
        ("dialects/opnai", "no plugin dialects/opnai"),
        (".", "names no plugin"),
    ],
)
def test_what_is_no_plugin_is_told_in_one_line(
    plugin: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    assert run(["check", plugin], {}) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
