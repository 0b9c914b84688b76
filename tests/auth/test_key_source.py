"""Keys from three places, their labels, the file's grammar, and its replacement while the server runs."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tensorfold.contracts.auth import Credentials
from tensorfold.contracts.settings import PluginSettings
from tensorfold.errors import ConfigError
from tensorfold_auth_keys import tensorfold_auth_sources, tensorfold_settings
from tensorfold_auth_keys.source import KeySource

WriteKeys = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> WriteKeys:
    """Replaces the key file atomically."""

    def replace(content: str | bytes, mode: int = 0o600) -> Path:
        fresh, file = tmp_path / "fresh", tmp_path / "keys"
        fresh.touch(mode)
        fresh.chmod(0o600)
        fresh.write_bytes(content.encode() if isinstance(content, str) else content)
        fresh.chmod(mode)
        os.replace(fresh, file)
        return file

    return replace


def label(source: KeySource, key: str) -> str | None:
    """Whose key it is."""
    principal = source.identify(Credentials(key, None))
    return principal.label if principal else None


# ---- three sources ----


@pytest.mark.requirement("T-002", "T-003", "T-004", "T-005", "T-027")
def test_the_three_sources_add_up_and_label_their_keys(write: WriteKeys) -> None:
    """Flags, variable and file each add keys; those without a name are `cli-N`, `env-N` and `file-N`."""
    source = KeySource(flags=["a", "b"], variable=["c", " d ", ""], file=write("e\n# f\ngrace: g\nh\n"))
    labels = {key: label(source, key) for key in "abcdefgh"}
    assert labels == {
        "a": "cli-1",
        "b": "cli-2",
        "c": "env-1",
        "d": "env-2",
        "e": "file-1",
        "f": None,
        "g": "grace",
        "h": "file-2",
    }
    assert source.description == "7 keys"


@pytest.mark.requirement("T-002", "T-003", "T-004")
def test_the_settings_are_two_flags_and_two_variables() -> None:
    """`--api-key` any number of times, `TENSORFOLD_API_KEY` with commas, `--api-key-file`; secrets stay out of files."""
    (table,) = tensorfold_settings()
    settings = {setting.name: setting for setting in table.settings}
    assert [(each.flag, each.env, each.type) for each in table.settings] == [
        ("--api-key", None, "strs"),
        (None, "TENSORFOLD_API_KEY", "strs"),
        ("--api-key-file", "TENSORFOLD_API_KEY_FILE", "path"),
    ]
    assert [settings[name].secret for name in ("api_key", "api_key_variable")] == [True, True]
    assert not any(settings[name].toml for name in ("api_key", "api_key_variable"))


def test_the_plugin_makes_its_source_of_the_settings(write: WriteKeys) -> None:
    values = {"api_key": ("a",), "api_key_variable": ("b",), "api_key_file": str(write("c"))}
    (source,) = tensorfold_auth_sources(PluginSettings({"auth.keys": values}))
    assert source.guards
    assert source.description == "3 keys"
    nothing = dict.fromkeys(values)
    (source,) = tensorfold_auth_sources(PluginSettings({"auth.keys": nothing}))
    assert not source.guards


def test_without_keys_it_does_not_guard() -> None:
    assert not KeySource().guards
    assert not KeySource(variable=["", " "]).guards


@pytest.mark.parametrize("key", ["", "a b", "a\tb", "a\nb", "a\x00", "x" * 5000])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        KeySource(flags=[key])
    assert "cli key 1" in str(caught.value)
    assert key == "" or key not in str(caught.value)


# ---- comparing ----


@pytest.mark.requirement("T-008")
def test_only_digests_are_kept(write: WriteKeys) -> None:
    """Only SHA-256 digests of keys are in memory, never the keys."""
    source = KeySource(flags=["sk-one-secret"], variable=["sk-two-secret"], file=write("sk-three-secret"))

    def reachable(value: object, seen: set[int]) -> str:
        if id(value) in seen or isinstance(value, type):
            return ""
        seen.add(id(value))
        if isinstance(value, (str, bytes)):
            return repr(value)
        parts = list(value) if isinstance(value, (tuple, list, set)) else []
        parts += [getattr(value, name) for name in getattr(value, "__slots__", ())]
        parts += list(getattr(value, "__dict__", {}).values())
        return " ".join(reachable(part, seen) for part in parts)

    held = reachable(source, set())
    assert "secret" not in held
    assert repr(hashlib.sha256(b"sk-two-secret").digest()) in held
    assert "secret" not in repr(source)


@pytest.mark.requirement("T-009")
@pytest.mark.parametrize("offered", ["k1", "k2", "k3", "nope", "", "ключ", "\udcff", None])
def test_every_digest_is_compared_on_every_attempt(monkeypatch: pytest.MonkeyPatch, offered: str | None) -> None:
    """As many constant-time comparisons as keys, for a right, a wrong, an empty and a non-ASCII key."""
    source = KeySource(flags=["k1", "k2", "k3"])
    compared: list[tuple[bytes, bytes]] = []
    real = hmac.compare_digest

    def counted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return real(one, other)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    principal = source.identify(Credentials(offered, None))
    assert len(compared) == 3
    assert (principal is not None) is (offered in ("k1", "k2", "k3"))


def test_a_wrong_bearer_beside_a_right_x_api_key_is_recognized() -> None:
    principal = KeySource(flags=["k"]).identify(Credentials("wrong", "k"))
    assert principal is not None
    assert principal.label == "cli-1"


# ---- the file ----


@pytest.mark.requirement("T-006")
@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ("k", {"k": "file-1"}),
        ("\n\nk\n\n", {"k": "file-1"}),
        ("k\r\nl\r\n", {"k": "file-1", "l": "file-2"}),
        ("  k  \n\tl\t", {"k": "file-1", "l": "file-2"}),
        ("# comment\n  # another\nk", {"k": "file-1"}),
        ("alice: k", {"k": "alice"}),
        ("alice:k", {"k": "alice"}),
        ("alice : k", {"k": "alice"}),
        ("a.b_c-D9: k", {"k": "a.b_c-D9"}),
        ("alice: k\nl\nbob: m\nn", {"k": "alice", "l": "file-1", "m": "bob", "n": "file-2"}),
        ("alice: x:y", {"x:y": "alice"}),
        ("k#l", {"k#l": "file-1"}),
        ("\ufeffk", {"k": "file-1"}),
        ("x" * 64 + ": k", {"k": "x" * 64}),
        ("ключ", {"ключ": "file-1"}),
        ("alice: k\nalice: l", {"k": "alice", "l": "alice"}),
    ],
)
def test_the_grammar_of_the_file(write: WriteKeys, content: str, keys: dict[str, str]) -> None:
    """One key a line, or `label: key`; lines that begin with `#` are comments."""
    source = KeySource(file=write(content))
    assert {key: label(source, key) for key in keys} == keys
    assert source.description == ("1 key" if len(keys) == 1 else f"{len(keys)} keys")


BAD = {
    "empty": b"",
    "only comments": b"# nothing\n\n",
    "a bad label": b"al ice: sk-secret",
    "a label with a slash": b"a/b: sk-secret",
    "a long label": b"x" * 65 + b": sk-secret",
    "an empty label": b": sk-secret",
    "a label without a key": b"alice:",
    "a key with a blank": b"sk secret",
    "a control character": b"sk-\x07secret",
    "not UTF-8": b"sk-\xff",
    "too long": b"# \n" * 400_000,
}


@pytest.mark.requirement("T-028")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_stops_the_start_and_its_keys_are_not_shown(write: WriteKeys, name: str) -> None:
    """A label that is not at most 64 letters, digits, dots, underscores or hyphens makes the source invalid."""
    with pytest.raises(ConfigError) as caught:
        KeySource(file=write(BAD[name]))
    assert "keys" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.requirement("T-007")
@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o660, 0o620, 0o602, 0o666])
def test_a_file_that_others_may_read_stops_the_start(write: WriteKeys, mode: int) -> None:
    """Start-up is refused when the key file can be read by other users."""
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 600"):
        KeySource(file=write("k", mode))


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_of_its_owner_alone_is_read(write: WriteKeys, mode: int) -> None:
    assert label(KeySource(file=write("k", mode)), "k") == "file-1"


def test_a_missing_file_a_folder_and_a_pipe_stop_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError, match=re.escape(str(path))):
            KeySource(file=path)


# ---- replacement ----


class Clock:
    """Time that goes when it is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.requirement("T-021", "T-022")
def test_a_replaced_file_rotates_the_keys_after_a_second_and_not_before(write: WriteKeys) -> None:
    """The file's modification time is looked at no more than once a second."""
    clock = Clock()
    source = KeySource(file=write("old"), clock=clock)
    write("new")
    clock.now += 0.9
    source.refresh()
    assert (label(source, "old"), label(source, "new")) == ("file-1", None)
    clock.now += 0.2
    source.refresh()
    assert (label(source, "old"), label(source, "new")) == (None, "file-1")
    write("newer")
    source.refresh()
    assert label(source, "new") == "file-1"


def test_an_unchanged_file_is_not_read_again(write: WriteKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    source = KeySource(file=write("k"), clock=clock)
    monkeypatch.setattr(KeySource, "reload", lambda self: pytest.fail("it was read again"))
    for _ in range(3):
        clock.now += 2
        source.refresh()


@pytest.mark.requirement("T-023")
def test_reload_reads_at_once_even_what_looks_unchanged(write: WriteKeys) -> None:
    """SIGHUP asks for an immediate reload."""
    source = KeySource(file=write("old"), clock=Clock())
    write("new")
    source.reload()
    assert (label(source, "old"), label(source, "new")) == (None, "file-1")


@pytest.mark.requirement("T-024")
@pytest.mark.parametrize("how", [*BAD, "gone", "open to others"])
def test_a_bad_replacement_closes_everything_until_a_good_one_is_back(write: WriteKeys, how: str) -> None:
    """Nobody is recognized, keys of flags and variable included, until a valid file is back."""
    clock = Clock()
    source = KeySource(flags=["flag"], variable=["variable"], file=write("old"), clock=clock)
    if how == "gone":
        write("x").unlink()
    elif how == "open to others":
        write("old", 0o644)
    else:
        write(BAD[how])
    with capture_logs() as lines:
        for _ in range(3):
            clock.now += 2
            source.refresh()
    assert [label(source, key) for key in ("flag", "variable", "old", "sk-secret")] == [None] * 4
    assert source.guards
    assert "closed" in source.description
    assert [line["log_level"] for line in lines] == ["error"], "it is told once"
    assert "secret" not in repr(lines)
    write("new")
    clock.now += 2
    source.refresh()
    assert [label(source, key) for key in ("flag", "variable", "new")] == ["cli-1", "env-1", "file-1"]


@pytest.mark.requirement("T-024")
def test_permissions_mended_in_place_open_again(write: WriteKeys) -> None:
    """A change that moves no modification time is seen as well."""
    clock = Clock()
    file = write("k")
    source = KeySource(file=file, clock=clock)
    for mode, expected in ((0o644, None), (0o600, "file-1")):
        file.chmod(mode)
        clock.now += 2
        source.refresh()
        assert label(source, "k") == expected


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root reads every file")
def test_an_unreadable_replacement_closes_too(write: WriteKeys) -> None:
    clock = Clock()
    source = KeySource(file=write("k"), clock=clock)
    write("k", 0o000)
    clock.now += 2
    source.refresh()
    assert label(source, "k") is None
