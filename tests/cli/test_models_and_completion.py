"""`tensorfold models` and `tensorfold completion`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tensorfold.cli.client import local_url
from tensorfold.cli.program import run
from tensorfold.config import load_config
from tensorfold.http import ServerSettings, create_app
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold.testing.serving import served
from tensorfold_auth_keys.source import KeySource
from tensorfold_dialect_openai import openai_dialect

PLUGIN = """
from pathlib import Path
from tensorfold import hookimpl
from tensorfold.contracts.local import LocalCheckpoint

@hookimpl
def tensorfold_list_checkpoints():
    yield LocalCheckpoint(name="acme/quokka", path=Path("/models/quokka"), bytes=3_000_000_000, source="acme's disk")
    yield LocalCheckpoint(name="acme/half", path=Path("/models/half"), bytes=5, source="acme's disk", complete=False)
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    """A plugin in a file, which knows two checkpoints."""
    file = tmp_path / "disk.py"
    file.write_text(PLUGIN)
    return str(file)


def test_models_are_listed_with_where_they_are_and_what_a_server_serves(
    plugin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    app = create_app(
        engine=ScriptedEngine(MODEL, lambda request: reply_events(["ok"], request.choices)),
        model=MODEL,
        dialects=[openai_dialect()],
        auth=[KeySource(flags=["k"])],
    )
    with served(app) as url:
        assert run(["models", "--plugin", plugin, "--url", url, "--key", "k"], {}) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(line.split() == ["acme/quokka", "3.00", "GB", "acme's", "disk", "/models/quokka"] for line in lines)
        assert any(line.startswith("acme/half") and "only in part" in line for line in lines)
        assert f"{url} serves {MODEL.id}, quokka" in lines
        assert run(["models", "--url", url, "--json"], {}) == 0
        told = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))
        assert told["served"]["ids"] == [] and "API key" in told["served"]["problem"]


def test_without_a_server_the_local_ones_are_listed_all_the_same(
    plugin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["models", "--plugin", plugin, "--json"], {"TENSORFOLD_PORT": "1"}) == 0
    told = json.loads(capsys.readouterr().out)
    names = [each["name"] for each in told["local"]]
    assert {"acme/quokka", "acme/half"} <= set(names)
    assert told["served"] == {
        "url": "http://127.0.0.1:1",
        "ids": [],
        "problem": "no server answers at http://127.0.0.1:1: Connection refused",
    }


def test_a_server_on_a_socket_file_is_asked_there(capsys: pytest.CaptureFixture[str]) -> None:
    app = create_app(
        engine=ScriptedEngine(MODEL, lambda request: reply_events(["ok"], request.choices)),
        model=MODEL,
        dialects=[openai_dialect()],
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "api.sock"
        with served(app, ServerSettings(unix_socket=path, drain_seconds=0.0)):
            assert run(["models"], {"TENSORFOLD_UNIX_SOCKET": str(path)}) == 0
            assert f"unix:{path} serves {MODEL.id}, quokka" in capsys.readouterr().out
        assert run(["models", "--url", f"unix:{path}"], {}) == 0
        assert f"no server answers at unix:{path}: No such file" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "http://127.0.0.1:8080"),
        ({"host": "0.0.0.0", "port": "1"}, "http://127.0.0.1:1"),
        ({"host": "::"}, "http://[::1]:8080"),
        ({"tls_cert": "/x", "host": "mine.example"}, "https://mine.example:8080"),
        ({"unix_socket": "/run/x"}, "unix:/run/x"),
    ],
)
def test_the_server_that_settings_describe_is_reached_from_this_machine(settings: dict[str, str], url: str) -> None:
    environment = {f"TENSORFOLD_{name.upper()}": value for name, value in settings.items()}
    assert local_url(load_config((), None, environment, {})) == url


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell], {}) == 0
    script = capsys.readouterr().out
    assert "_TENSORFOLD_COMPLETE" in script and "tensorfold" in script


@pytest.mark.parametrize(
    ("words", "expected"),
    [("tensorfold ser", "serve"), ("tensorfold serve --po", "--port"), ("tensorfold keys n", "new")],
)
def test_commands_and_options_are_completed(words: str, expected: str) -> None:
    """As a shell asks: with the words in variables, and no arguments."""
    asked = {"_TENSORFOLD_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", "from tensorfold.cli import main; main()"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"plain,{expected}" in done.stdout.split()
