"""What is refused: before its weights where that can be told, and always where its content is not what the Hub lists."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tensorfold.cli.assemble import assemble
from tensorfold.cli.early import take_early
from tensorfold.errors import CheckpointError, CheckpointNotFound, CheckpointUnsupported, ConfigError
from tensorfold.testing.declared_checkpoint import write_declared
from tensorfold.testing.family_configs import FAMILY_CONFIGS
from tensorfold_extra_checkpoints import download as downloading
from tensorfold_extra_checkpoints import tensorfold_find_checkpoint
from tensorfold_model_gemma.family import GemmaFamily

from .hub import Repository, git_digest, large, weights_asked
from .puller import Puller

# ---- before its weights ----


def test_a_model_that_cannot_be_run_is_refused_before_its_weights(pull: Puller, repository: Repository) -> None:
    config = {**json.loads(repository.files["config.json"]), "model_type": "abacus", "architectures": ["Abacus"]}
    repository.files["config.json"] = json.dumps(config).encode()
    with pytest.raises(CheckpointUnsupported, match="no model family runs this checkpoint"):
        pull()
    assert weights_asked(repository) == []


def test_a_quantization_that_is_not_read_is_refused_before_its_weights(pull: Puller, repository: Repository) -> None:
    config = {**json.loads(repository.files["config.json"]), "quantization_config": {"quant_method": "abacus"}}
    repository.files["config.json"] = json.dumps(config).encode()
    with pytest.raises(CheckpointUnsupported):
        pull()
    assert weights_asked(repository) == []


class Silent:
    """Stages that nobody watches."""

    def stage(self, text: str) -> None: ...

    def weights(self, done: int, total: int) -> None: ...


def test_serving_refuses_what_cannot_be_run_before_its_weights_are_downloaded(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.files["config.json"] = b'{"model_type": "quokka"}'
    for name, value in {**pull.environment, "HF_HUB_OFFLINE": "0"}.items():
        monkeypatch.setenv(name, value)
    launch, _ = take_early([], {})
    with pytest.raises(CheckpointUnsupported, match="quokka"):
        assemble(launch.config({("", "model"): "org/tiny"}), launch.plugins, Silent())
    assert weights_asked(repository) == []


def test_a_drafter_that_does_not_fit_is_refused_before_its_weights_are_downloaded(
    pull: Puller, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.files["config.json"] = b'{"model_type": "llama"}'
    for name, value in {**pull.environment, "HF_HUB_OFFLINE": "0"}.items():
        monkeypatch.setenv(name, value)
    model = write_declared(tmp_path / "target", GemmaFamily(), FAMILY_CONFIGS["gemma4"])
    launch, _ = take_early([], {})
    flags = {("", "model"): str(model), ("", "draft_model"): "org/tiny"}
    with pytest.raises(CheckpointUnsupported, match="llama"):
        assemble(launch.config(flags), launch.plugins, Silent())
    assert weights_asked(repository) == []


@pytest.mark.parametrize("path", ["../../evil", "/etc/passwd", "a/../../../b.json", "..\\evil"])
def test_a_file_that_would_lie_elsewhere_is_refused(pull: Puller, repository: Repository, path: str) -> None:
    repository.files[path] = b"{}"
    with pytest.raises(CheckpointError, match="leads out of its folder"):
        pull()


def test_no_room_is_told_before_anything_large_is_brought(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> Any:
        return type("Usage", (), {"free": 10})

    monkeypatch.setattr("shutil.disk_usage", full)
    with pytest.raises(CheckpointError, match="make room"):
        pull()
    assert weights_asked(repository) == []


# ---- content that is not what is listed ----


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_content_that_is_not_what_the_hub_lists_is_never_used(pull: Puller, repository: Repository, name: str) -> None:
    """Of large files by SHA-256, of small ones by git's digest."""
    wrong = {"model.safetensors": "0" * 64, "config.json": "0" * 40}[name]

    def tell(each: str, sibling: dict[str, Any]) -> None:
        if each == name:
            (sibling.get("lfs") or sibling)["sha256" if large(name) else "blobId"] = wrong

    repository.tell = tell
    with pytest.raises(CheckpointError, match=f"{name} is not what the Hub lists"):
        pull()


def test_a_part_that_was_spoilt_is_noticed_and_thrown_away(pull: Puller, repository: Repository) -> None:
    content = repository.files["model.safetensors"]
    blob = pull.cache / "models--org--tiny" / "blobs" / hashlib.sha256(content).hexdigest()
    part = blob.with_name(blob.name + downloading.PART)
    part.parent.mkdir(parents=True)
    part.write_bytes(b"?" * 100)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not what the Hub lists"):
        pull()
    assert not part.exists() and not blob.exists()
    assert not (pull.cache / "models--org--tiny" / "refs").exists(), "no revision names what is not whole"
    assert (pull() / "model.safetensors").read_bytes() == content


def test_a_name_that_is_served_is_checked_like_one_that_is_pulled(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**pull.environment, "HF_HUB_OFFLINE": "0"}.items():
        monkeypatch.setenv(name, value)

    def lie(name: str, sibling: dict[str, Any]) -> None:
        if large(name):
            sibling["lfs"]["sha256"] = "0" * 64

    repository.tell = lie
    with pytest.raises(CheckpointError, match="is not what the Hub lists"):
        tensorfold_find_checkpoint("org/tiny", weights=True)


# ---- what cannot be asked for ----


def test_what_the_hub_does_not_give_is_told(pull: Puller, repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointNotFound, match=r"org/gone cannot be pulled: there is no such model.*Repository not found"
    ):
        pull("org/gone")
    with pytest.raises(CheckpointNotFound, match="does not answer"):
        Puller("http://127.0.0.1:1", tmp_path / "hub")()
    for name, revision in (("tiny", "main"), ("org/../x", "main"), ("org/tiny", "../x")):
        with pytest.raises(ConfigError):
            pull(name, revision)
    repository.refuse = [403] * 9
    with pytest.raises(CheckpointError, match="the server answers 403"):
        pull()


def test_nothing_is_asked_of_the_hub_where_that_is_forbidden(pull: Puller, repository: Repository) -> None:
    pull.environment["HF_HUB_OFFLINE"] = "1"
    with pytest.raises(CheckpointNotFound, match="HF_HUB_OFFLINE is set"):
        pull()
    assert repository.asked == []


def test_two_downloads_of_one_file_do_not_write_into_each_other(pull: Puller, repository: Repository) -> None:
    fcntl = pytest.importorskip("fcntl")
    blob = pull.cache / "models--org--tiny" / "blobs" / git_digest(repository.files["config.json"])
    blob.parent.mkdir(parents=True)
    with blob.with_name(blob.name + downloading.PART).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="another download is writing"):
            pull()
