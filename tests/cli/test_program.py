"""The program as a whole: its commands, what it imports, and how it fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tensorfold.cli.early import take_early
from tensorfold.cli.program import run
from tensorfold.errors import ConfigError

HEAVY = ("torch", "mlx", "transformers", "numba", "numpy", "uvicorn", "falcon", "jinja2", "structlog")

PLUGIN = """
import click
from tensorfold import hookimpl
from tensorfold.contracts.commands import Command
from tensorfold.contracts.settings import Setting, SettingsTable

@hookimpl
def tensorfold_commands():
    @click.command("greet", help="Say hello.")
    @click.argument("name")
    def greet(name):
        click.echo(f"hello {name}")
        return 7
    yield Command(greet)

    @click.command("greetings", help="Say hello many times.")
    def greetings():
        click.echo("hello " * 3)
    yield Command(greetings, under="bench")

@hookimpl
def tensorfold_settings():
    yield SettingsTable("extras.greet", (
        Setting(name="loud", type="bool", help="Shout.", flag="--loud", default=False),
        Setting(name="word", type="strs", help="A word.", flag="--word", secret=True, toml=False),
    ))
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    """A plugin in a file, with a command and settings."""
    file = tmp_path / "greeting.py"
    file.write_text(PLUGIN)
    return str(file)


@pytest.mark.parametrize("arguments", [["--help"], ["plugins"], ["plugins", "--json"], ["serve", "--help"]])
def test_asking_what_there_is_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from tensorfold.cli.program import run; "
        f"status = run({arguments!r}, {{}}); "
        f"print(status, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == "0 []\n"
    assert done.stdout


def test_the_program_runs_as_a_module_and_says_its_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tensorfold", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("tensorfold 0.")


def test_plugins_are_listed_with_whose_they_are_and_their_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plugins", "--json", "--plugin", "no:auth/keys"], {}) == 0
    listed = json.loads(capsys.readouterr().out)
    assert all(set(each) == {"kind", "name", "distribution", "version", "state", "reason"} for each in listed)
    keys = next(each for each in listed if (each["kind"], each["name"]) == ("auth", "keys"))
    assert (keys["distribution"], keys["state"]) == ("tensorfold", "disabled")
    assert run(["plugins"], {}) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["plugin", "distribution", "version", "state", "reason"]
    assert len(rows) == len(listed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plugins", "--dialect", "opnai"], "tensorfold: no plugin dialects/opnai; there are dialects/anthropic"),
        (["plugins", "--plugin", "a_module_that_is_not_there"], "tensorfold: plugin extras/a_module_that_is_not_there"),
        (["plugins", "--plugin"], "tensorfold: --plugin needs a value"),
        (["plugins", "--config", "not-there.toml"], "tensorfold: there is no configuration file not-there.toml"),
        (["serve", "--port", "http"], "tensorfold: --port is 'http', and must be an integer"),
        (["serve", "--port", "-1"], "tensorfold: --port is -1, and must be between 0 and 65535"),
        (["chat", "--url", "ftp://x"], "tensorfold: ftp://x is no URL of a server"),
        (["chat", "MODEL", "--url", "x"], "tensorfold: MODEL and --url exclude each other"),
        (["info", "~no-such-user/x"], "tensorfold: there is no folder or file"),
        (["plugins", "--plugin", "~no-such-user/x.py"], "tensorfold: plugin extras/x"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(arguments, {}) == 2
    told = capsys.readouterr()
    assert told.err.startswith(message)
    assert told.err.count("\n") == 1
    assert not told.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "no such command 'nonsense'; see `tensorfold --help`"),
        (["serve", "--prot", "1"], "no such option '--prot'"),
        (["serve", "a", "b"], "got unexpected extra argument (b); see `tensorfold serve --help`"),
        (
            ["bench", "--rate", "1", "--concurrency", "1"],
            "--concurrency and --rate exclude each other; see `tensorfold bench --help`",
        ),
    ],
)
def test_a_wrong_word_is_one_line_too_and_says_where_the_right_ones_are(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run(arguments, {}) == 2
    told = capsys.readouterr().err
    assert told.startswith("tensorfold: ") and told.count("\n") == 1
    assert message in told


def test_a_plugin_adds_a_command_and_its_exit_code_is_the_programs(
    capsys: pytest.CaptureFixture[str], plugin: str
) -> None:
    assert run(["--plugin", plugin, "--help"], {}) == 0
    assert re.search(r"^ +greet +Say hello\.$", capsys.readouterr().out, re.MULTILINE)
    assert run(["greet", "--plugin", plugin, "world"], {}) == 7
    assert capsys.readouterr().out == "hello world\n"


def test_a_command_of_a_plugin_with_the_name_of_ours_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "greedy.py"
    file.write_text(PLUGIN.replace('"greet"', '"serve"'))
    assert run(["--plugin", str(file), "--help"], {}) == 2
    assert "tensorfold itself and extras/greedy" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "claim"), [("--port", "--port"), ("--api-key", "--api-key")])
def test_two_settings_with_one_flag_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, claim: str
) -> None:
    file = tmp_path / "greedy.py"
    file.write_text(PLUGIN.replace('"--loud"', f'"{flag}"'))
    assert run(["--plugin", str(file), "config"], {}) == 2
    assert f"both claim the setting {claim}" in capsys.readouterr().err


def test_a_plugins_settings_are_flags_and_secrets_are_not_shown(
    capsys: pytest.CaptureFixture[str], plugin: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("port = 9000\n[extras.greet]\nloud = true\n")
    arguments = ["config", "--config", str(file), "--word", "hunter2", f"--plugin={plugin}", "--host", "::1"]
    assert run(arguments, {"TENSORFOLD_QUEUE": "3"}) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "port = 9000  # mine.toml" in shown
    assert 'host = "::1"  # --host' in shown
    assert "queue = 3  # TENSORFOLD_QUEUE" in shown
    assert "loud = true  # mine.toml" in shown
    assert 'word = "..."  # --word' in shown
    assert not any("hunter2" in line for line in shown)


def test_a_variable_that_looks_misspelt_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config"], {"TENSORFOLD_PROT": "1"}) == 0
    assert capsys.readouterr().err == "warning: TENSORFOLD_PROT is no setting; did you mean TENSORFOLD_PORT?\n"


def test_options_that_choose_plugins_are_taken_out_wherever_they_stand() -> None:
    launch, rest = take_early(["--plugin", "a", "serve", "--dialect=x", "m", "--plugin=b", "--backend", "t"], {})
    assert rest == ["serve", "m"]
    assert launch.given == {("", "plugin"): ("a", "b"), ("", "dialect"): ("x",), ("", "backend"): "t"}


def test_nothing_is_taken_from_behind_a_double_dash() -> None:
    launch, rest = take_early(["serve", "--", "--plugin", "a"], {})
    assert rest == ["serve", "--", "--plugin", "a"]
    assert launch.given == {}


def test_plugins_may_be_chosen_in_the_file_and_by_the_environment(
    capsys: pytest.CaptureFixture[str], plugin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tensorfold.toml").write_text(f"plugin = [{json.dumps(plugin)}]\n")
    assert run(["greet", "file"], {}) == 7
    assert run(["greet", "file"], {"TENSORFOLD_PLUGIN": "no:auth/keys"}) == 2
    assert "hello file" in capsys.readouterr().out


def test_an_unreadable_file_stops_even_the_help(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("port =")
    with pytest.raises(ConfigError, match="no TOML"):
        take_early(["--config", str(tmp_path / "broken.toml")], {})


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = f"{sys.executable} -m tensorfold config | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert "Traceback" not in done.stderr
    assert done.stdout.count("\n") == 1


def test_a_plugins_measurement_is_a_command_of_bench(plugin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "greetings", "--plugin", plugin], {}) == 0
    assert capsys.readouterr().out == "hello hello hello \n"
    assert run(["bench", "--help", "--plugin", plugin], {}) == 0
    shown = capsys.readouterr().out
    assert "greetings" in shown and "kernels" in shown
    assert run(["greetings", "--plugin", plugin], {}) == 2
