"""`tensorfold service`: the files that it writes, and what it asks of the system's own programs."""

from __future__ import annotations

import json
import plistlib
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorfold.cli.early import take_early
from tensorfold.cli.program import run
from tensorfold.cli.service.arguments import serve_arguments
from tensorfold.cli.service.launchd import Launchd
from tensorfold.cli.service.systemd import unit
from tensorfold.errors import ConfigError

PROGRAM = """#!{python}
import json, sys
with open({log!r}, "a") as log:
    log.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
print({name!r} + " says so")
sys.exit({code})
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], list[list[str]]]]:
    """Puts programs of these names on the path, alone; gives what they were called with."""

    def put(*names: str, code: int = 0) -> Callable[[], list[list[str]]]:
        folder, log = tmp_path / "bin", tmp_path / "calls"
        folder.mkdir(exist_ok=True)
        for name in names:
            file = folder / name
            file.write_text(PROGRAM.format(python=sys.executable, log=str(log), name=name, code=code))
            file.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))
        return lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    return put


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setattr(sys, "platform", "linux")
    return folder


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / "keys"
    file.write_text("alice: a-secret-key\n")
    file.chmod(0o600)
    return file


def read_back(text: str) -> list[str]:
    """The arguments of a unit's ExecStart, as systemd reads them."""
    (line,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    words = re.findall(r'"((?:[^"\\]|\\.)*)"|(\S+)', line)
    plain = [quoted or bare for quoted, bare in words]
    return [re.sub(r"\\(.)", r"\1", word).replace("%%", "%").replace("$$", "$") for word in plain]


@pytest.mark.requirement("T-029")
def test_a_service_is_installed_with_the_key_file_passed_on(
    programs: Any, home: Path, keys: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tensorfold service install MODEL --api-key-file PATH` passes the file on to the server, and no key."""
    calls = programs("systemctl")
    monkeypatch.chdir(keys.parent)
    arguments = ["service", "install", "smollm2", "--api-key-file", "keys", "--port", "9000", "--alias", "a b"]
    assert run(arguments, {"HOME": str(home)}) == 0
    file = home / ".config" / "systemd" / "user" / "tensorfold.service"
    text = file.read_text()
    assert read_back(text) == [
        *(sys.executable, "-m", "tensorfold", "serve", "smollm2"),
        *("--alias", "a b", "--port", "9000", "--api-key-file", str(keys)),
    ]
    assert "a-secret-key" not in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "TimeoutStopSec=15\n" in text and "UMask=0077\n" in text
    assert calls() == [
        ["systemctl", "--user", "daemon-reload"],
        ["systemctl", "--user", "enable", "tensorfold.service"],
        ["systemctl", "--user", "restart", "tensorfold.service"],
    ]
    assert str(file) in capsys.readouterr().out


def test_a_service_is_looked_after_by_its_own_programs(
    programs: Any, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    environment = {"XDG_CONFIG_HOME": str(home / "xdg")}
    calls = programs("systemctl", "journalctl")
    assert run(["service", "install", "--name", "two", "smollm2"], environment) == 0
    file = home / "xdg" / "systemd" / "user" / "two.service"
    assert file.is_file()
    before = len(calls())
    for words in (["stop"], ["start"], ["status"], ["logs", "--lines", "7", "--follow"], ["uninstall"]):
        assert run(["service", *words, "--name", "two"], environment) == 0
    assert calls()[before:] == [
        ["systemctl", "--user", "stop", "two.service"],
        ["systemctl", "--user", "start", "two.service"],
        ["systemctl", "--user", "--no-pager", "status", "two.service"],
        ["journalctl", "--user", "--no-pager", "--lines", "7", "--follow", "--unit", "two.service"],
        ["systemctl", "--user", "disable", "--now", "two.service"],
        ["systemctl", "--user", "daemon-reload"],
    ]
    assert not file.exists()
    assert "journalctl says so" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--api-key", "a-secret-key"], "--api-key is a secret"),
        (["--port", "http"], "--port is 'http', and must be an integer"),
        (["--api-key-file", "/no/such/file"], "the key file /no/such/file cannot be read"),
        (["--served-name", "a\nb"], "holds a line break"),
    ],
)
def test_what_a_service_cannot_have_is_told_and_nothing_is_written(
    programs: Any, home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    calls = programs("systemctl")
    assert run(["service", "install", "smollm2", *arguments], {}) == 2
    told = capsys.readouterr().err
    assert message in told and "a-secret-key" not in told
    assert calls() == [] and list(home.rglob("*.service")) == []


def test_an_option_that_is_none_is_told(programs: Any, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    programs("systemctl")
    assert run(["service", "install", "smollm2", "--prot", "1"], {}) == 2
    assert "no such option" in capsys.readouterr().err


def test_settings_of_the_shell_are_told_to_be_missing(
    programs: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs("systemctl")
    assert run(["service", "install", "smollm2"], {"TENSORFOLD_API_KEY": "a-secret-key"}) == 0
    told = capsys.readouterr()
    assert "the service will not have TENSORFOLD_API_KEY" in told.err
    assert "a-secret-key" not in told.err + told.out


@pytest.mark.parametrize(
    ("name", "message"), [("none", "no service none is installed"), ("../x", "is no name of a service")]
)
def test_a_service_that_is_not_there_is_told(
    programs: Any, home: Path, capsys: pytest.CaptureFixture[str], name: str, message: str
) -> None:
    programs("systemctl")
    assert run(["service", "stop", "--name", name], {}) == 2
    assert message in capsys.readouterr().err


def test_a_program_that_is_missing_or_fails_is_told(
    programs: Any, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs()
    assert run(["service", "install", "smollm2"], {}) == 2
    assert "there is no program systemctl" in capsys.readouterr().err
    programs("systemctl", code=1)
    assert run(["service", "install", "smollm2"], {}) == 2
    assert "`systemctl --user daemon-reload` failed: systemctl says so" in capsys.readouterr().err


def test_paths_are_whole_and_what_chooses_plugins_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.gguf").touch()
    (tmp_path / "mine.py").write_text(
        "from tensorfold import hookimpl\n@hookimpl\ndef tensorfold_commands():\n    return ()\n"
    )
    (tmp_path / "own.toml").write_text("queue = 3\n")
    launch, _ = take_early(["--config", "own.toml", "--plugin", "mine.py", "--dialect", "openai"], {})
    words = serve_arguments(launch, ["model.gguf", "--log-requests", "logs", "--no-metrics-open"]).words
    assert words[3:] == (
        *("--config", str(tmp_path / "own.toml"), "--plugin", str(tmp_path / "mine.py"), "--dialect", "openai"),
        *("serve", str(tmp_path / "model.gguf"), "--no-metrics-open", "--log-requests", str(tmp_path / "logs")),
    )


@pytest.mark.parametrize("word", ['say "hi"', "100%", "$HOME", "back\\slash", "a b", "%n", "semi;colon", "'", "é"])
def test_arguments_come_through_systemds_spelling_as_they_are(word: str) -> None:
    assert read_back(unit(["/bin/x", word, "end"], 5.0)) == ["/bin/x", word, "end"]


def test_a_launch_agent_has_the_arguments_as_a_list_and_ends_in_time(
    programs: Any, home: Path, keys: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    calls = programs("launchctl", "tail")
    arguments = ["service", "install", "smollm2", "--api-key-file", str(keys), "--grace", "20"]
    assert run(arguments, {}) == 0
    file = home / "Library" / "LaunchAgents" / "org.tensorfold.tensorfold.plist"
    agent = plistlib.loads(file.read_bytes())
    assert agent["ProgramArguments"][3:] == ["serve", "smollm2", "--grace", "20", "--api-key-file", str(keys)]
    assert agent["ExitTimeOut"] == 30 and agent["Umask"] == 0o077
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    log = agent["StandardErrorPath"]
    assert log.startswith(str(home / "Library" / "Logs"))
    (bootstrap,) = calls()
    assert bootstrap[:2] == ["launchctl", "bootstrap"] and bootstrap[3] == str(file)
    domain = bootstrap[2]
    assert domain.startswith("gui/")
    for words in (["install", "smollm2"], ["stop"], ["start"], ["status"], ["logs"], ["uninstall"]):
        assert run(["service", *words], {}) == 0
    target = f"{domain}/org.tensorfold.tensorfold"
    assert calls()[1:] == [
        ["launchctl", "bootout", target],
        ["launchctl", "bootstrap", domain, str(file)],
        ["launchctl", "kill", "SIGTERM", target],
        ["launchctl", "kickstart", target],
        ["launchctl", "print", target],
        ["tail", "-n", "100", log],
        ["launchctl", "bootout", target],
    ]
    assert not file.exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path, programs: Any) -> None:
    programs("launchctl")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be made"):
        Launchd("x", tmp_path / "file", 501).install(["x"], 5.0)


def test_another_system_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    assert run(["service", "status"], {}) == 2
    assert "win32 has neither" in capsys.readouterr().err
