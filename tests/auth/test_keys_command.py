"""`tensorfold keys`: what it writes is what the server reads."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tensorfold.cli.program import run
from tensorfold.contracts.auth import Credentials
from tensorfold.errors import ConfigError
from tensorfold_auth_keys.keys import digest_of, read_key_file
from tensorfold_auth_keys.source import KeySource

Captured = pytest.CaptureFixture[str]


def who(source: KeySource, key: str) -> str | None:
    found = source.identify(Credentials(bearer=key, api_key=None))
    return None if found is None else found.label


def new(file: Path, label: str, capsys: Captured) -> str:
    assert run(["keys", "new", label, "--file", str(file)], {}) == 0
    return capsys.readouterr().out.strip()


@pytest.mark.requirement("Y-200")
def test_a_key_is_printed_once_and_its_digest_is_what_the_server_knows_it_by(tmp_path: Path, capsys: Captured) -> None:
    """`tensorfold keys new` prints a key once and stores its digest in a file of mode 0600; the server lets it in."""
    file = tmp_path / "deep" / "keys"
    key = new(file, "alice", capsys)
    assert len(key) > 40 and key.isascii()
    assert key not in file.read_text() and digest_of(key).hex() in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    source = KeySource(file=file)
    assert (who(source, key), who(source, key + "x"), who(source, digest_of(key).hex())) == ("alice", None, None)


@pytest.mark.requirement("Y-200")
def test_a_running_server_learns_of_new_and_removed_keys(tmp_path: Path, capsys: Captured) -> None:
    """Keys rotate in place: the file is replaced in one step, and what stood in it stays."""
    file = tmp_path / "keys"
    file.write_text("# ours\nbob: old-key-of-bob\nplain-key\n")
    file.chmod(0o600)
    source = KeySource(file=file)
    key = new(file, "alice", capsys)
    source.reload()
    assert (who(source, key), who(source, "old-key-of-bob"), who(source, "plain-key")) == ("alice", "bob", "file-1")
    capsys.readouterr()
    assert run(["keys", "list", "--file", str(file)], {}) == 0
    assert capsys.readouterr().out.split() == ["bob", "file-1", "alice"]
    assert run(["keys", "remove", "alice", "--file", str(file)], {}) == 0
    source.reload()
    assert (who(source, key), who(source, "old-key-of-bob")) == (None, "bob")
    assert file.read_text() == "# ours\nbob: old-key-of-bob\nplain-key\n"
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_the_last_key_can_be_removed_and_then_nobody_is_let_in(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "keys"
    key = new(file, "alice", capsys)
    source = KeySource(file=file)
    assert run(["keys", "remove", "alice", "--file", str(file)], {}) == 0
    assert "lets nobody in" in capsys.readouterr().err
    source.reload()
    assert who(source, key) is None and source.guards


def test_the_file_may_be_the_one_that_the_settings_name(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tensorfold.toml").write_text('[auth.keys]\napi_key_file = "mine"\n')
    assert run(["keys", "new", "alice"], {}) == 0
    assert (tmp_path / "mine").is_file()
    assert run(["keys", "new", "bob"], {"TENSORFOLD_API_KEY_FILE": str(tmp_path / "other")}) == 0
    assert (tmp_path / "other").is_file()
    (tmp_path / "tensorfold.toml").unlink()
    capsys.readouterr()
    assert run(["keys", "new", "carol"], {}) == 2
    assert "which file?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new", "alice"], "has a key of alice already"),
        (["new", "a b"], "a label has at most 64 letters"),
        (["new", "a" * 65], "a label has at most 64 letters"),
        (["remove", "bob"], "has no key of bob"),
    ],
)
def test_what_cannot_be_is_told_and_changes_nothing(
    tmp_path: Path, capsys: Captured, arguments: list[str], message: str
) -> None:
    file = tmp_path / "keys"
    new(file, "alice", capsys)
    before = file.read_text()
    assert run(["keys", *arguments, "--file", str(file)], {}) == 2
    assert message in capsys.readouterr().err
    assert file.read_text() == before


def test_a_file_that_others_may_read_is_refused_and_so_is_a_change_in_progress(
    tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "keys"
    file.write_text("a: some-key\n")
    file.chmod(0o644)
    assert run(["keys", "new", "alice", "--file", str(file)], {}) == 2
    assert "chmod 600" in capsys.readouterr().err
    file.chmod(0o600)
    (tmp_path / ".keys.new").touch()
    assert run(["keys", "new", "alice", "--file", str(file)], {}) == 2
    assert "another command is changing the keys" in capsys.readouterr().err


@pytest.mark.parametrize("digest", ["", "00", "g" * 64, "A" * 64])
def test_a_digest_that_is_none_makes_the_file_bad(tmp_path: Path, digest: str) -> None:
    file = tmp_path / "keys"
    file.write_text(f"alice: sha256:{digest}\n")
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="is no SHA-256"):
        read_key_file(file)
