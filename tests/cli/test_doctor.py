"""`tensorfold doctor`: every line says what is so, and what to do where it should be otherwise."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, cast

import pytest

from tensorfold.cli.doctor.software import look_at_packages
from tensorfold.cli.program import run

Finding = dict[str, str]

BROKEN = """
from tensorfold import hookimpl
from tensorfold.errors import PluginUnavailable

@hookimpl
def tensorfold_backends():
    raise PluginUnavailable("the abacus is not plugged in: plug it in")

@hookimpl
def tensorfold_list_checkpoints():
    raise ZeroDivisionError("no disk")
"""


@pytest.fixture
def examine(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[Finding]]]:
    """Runs the command; its exit code and what it found."""

    def look(*arguments: str, **environment: str) -> tuple[int, list[Finding]]:
        code = run(["doctor", "--json", *arguments], environment)
        return code, cast("list[Finding]", json.loads(capsys.readouterr().out))

    return look


def of(findings: list[Finding], area: str) -> list[Finding]:
    return [each for each in findings if each["area"] == area]


@pytest.fixture
def port() -> str:
    """One that is free at this moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def test_a_machine_that_is_well_has_no_problems(examine: Any, port: str) -> None:
    code, findings = examine("--port", port)
    assert code == 0
    assert {each["area"] for each in findings} >= {
        *("python", "packages", "plugins", "settings", "devices", "memory", "address", "keys", "disk", "models")
    }
    assert not [each for each in findings if each["state"] == "problem"]
    assert all(each["todo"] for each in findings if each["state"] == "warning")


def test_for_people_each_finding_is_a_line_with_what_to_do_below(capsys: pytest.CaptureFixture[str], port: str) -> None:
    assert run(["doctor", "--host", "0.0.0.0", "--port", port], {}) == 0
    shown = capsys.readouterr().out
    assert "!!  keys      no keys, and whoever reaches 0.0.0.0 may use the server\n" in shown
    assert "-> tensorfold keys new LABEL" in shown
    assert "ok  python    Python 3." in shown


def test_a_taken_port_is_a_problem(examine: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, findings = examine("--port", str(taken.getsockname()[1]))
    assert code == 1
    (address,) = of(findings, "address")
    assert address["state"] == "problem" and "another program listens there" in address["says"]


def test_a_key_file_that_others_may_read_is_a_problem_that_names_its_way_out(
    examine: Any, tmp_path: Path, port: str
) -> None:
    file = tmp_path / "keys"
    file.write_text("alice: a-secret-key\n")
    file.chmod(0o644)
    code, findings = examine("--api-key-file", str(file), "--port", port)
    assert code == 1
    (keys,) = of(findings, "keys")
    assert f"chmod 600 {file}" in keys["says"]
    file.chmod(0o600)
    code, findings = examine("--api-key-file", str(file), "--port", port)
    assert code == 0
    assert of(findings, "keys")[0]["says"] == "keys: 1 key"
    assert "a-secret-key" not in json.dumps(findings)


def test_folders_that_hold_prompts_and_are_open_to_others_are_told(examine: Any, tmp_path: Path, port: str) -> None:
    logs, spill = tmp_path / "logs", tmp_path / "spill"
    logs.mkdir(mode=0o755)
    spill.mkdir(mode=0o700)
    logs.chmod(0o755)
    _, findings = examine("--log-requests", str(logs), "--spill-dir", str(spill), "--spill-gib", "1", "--port", port)
    states = {each["says"].split(",")[0]: (each["state"], each["todo"]) for each in of(findings, "files")}
    assert states["the folder of logged requests"] == ("warning", f"chmod 700 {logs}")
    assert states["the folder of kept prompts"] == ("ok", "")
    assert {each["says"].split(" at ")[0] for each in of(findings, "disk")} == {
        *("the cache", "kept prompts", "logged requests")
    }


def test_what_a_plugin_says_or_raises_is_a_finding_and_the_rest_is_looked_at(
    examine: Any, tmp_path: Path, port: str
) -> None:
    file = tmp_path / "abacus.py"
    file.write_text(BROKEN.replace("raise PluginUnavailable", "return []  # "))
    code, findings = examine("--plugin", str(file), "--port", port)
    assert code == 1
    (models,) = of(findings, "models")
    assert models["state"] == "problem" and "ZeroDivisionError" in models["says"]
    assert of(findings, "disk")


def test_a_misspelt_variable_and_the_file_are_told(examine: Any, tmp_path: Path, port: str) -> None:
    (tmp_path / "mine.toml").write_text("queue = 3\n")
    _, findings = examine("--config", str(tmp_path / "mine.toml"), "--port", port, TENSORFOLD_PROT="1")
    file, warning = of(findings, "settings")
    assert str(tmp_path / "mine.toml") in file["says"]
    assert warning["state"] == "warning" and "TENSORFOLD_PORT" in warning["says"]


def test_packages_that_are_missing_or_old_are_told_with_the_command() -> None:
    there = {"tensorfold": "1.0", "click": "8.1.7", "numpy": "2.10.0", "torch": "2.13.0+cpu"}

    def installed(name: str) -> str:
        if name not in there:
            raise PackageNotFoundError(name)
        return there[name]

    needed = [
        "click>=8.2",
        "numpy>=2.9",
        "falcon>=4.2",
        "uvicorn[standard]>=0.35; sys_platform == 'win32'",
        "torch>=2.6; extra == 'torch'",
        "xgrammar>=0.2.9; extra == 'grammar'",
        "ruff; extra == 'lint'",
    ]
    found = {each.says: (each.state, each.todo) for each in look_at_packages(needed, installed)}
    assert found == {
        "click is 8.1.7, and 8.2 or later is needed, falcon is not installed": (
            "problem",
            "pip install --upgrade tensorfold",
        ),
        "extra torch, which computes on NVIDIA GPUs": ("ok", ""),
        "extra grammar: xgrammar is not installed": (
            "note",
            "pip install 'tensorfold[grammar]', which keeps replies to a schema, regex or grammar",
        ),
    }
