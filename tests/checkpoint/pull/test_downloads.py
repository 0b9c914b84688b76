"""A model is brought whole into the cache that everything reads, and what breaks off is taken up where it broke."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.cli.program import run
from tensorfold.errors import CheckpointError
from tensorfold.plugins import Plugins, Wanted
from tensorfold.testing.declared_checkpoint import write_declared_drafter
from tensorfold.testing.family_configs import DRAFTER_CONFIGS
from tensorfold_extra_checkpoints import download as downloading
from tensorfold_extra_checkpoints import tensorfold_find_checkpoint, tensorfold_list_checkpoints
from tensorfold_model_gemma.family import GemmaFamily

from .hub import Repository, weights_asked
from .puller import Puller

TOKEN = "hf_secret"


def test_a_model_is_brought_checked_and_found_by_everything_that_reads_the_cache(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pull()
    wanted = {name for name in repository.files if name not in ("README.md", "pytorch_model.bin")}
    assert {file.name for file in folder.iterdir()} == wanted
    assert all((folder / name).read_bytes() == repository.files[name] for name in wanted)
    families = [offered.value for offered in Plugins(Wanted()).families()]
    assert open_checkpoint(folder, families).family.name == "llama"
    assert pull.said.lines[0].startswith("org/tiny is run by llama")
    for name, value in pull.environment.items():
        monkeypatch.setenv(name, value)
    assert tensorfold_find_checkpoint("org/tiny", weights=True) == folder
    (listed,) = [each for each in tensorfold_list_checkpoints() if each.source == "Hub cache"]
    assert (listed.name, listed.path, listed.complete) == ("org/tiny", folder, True)
    assert listed.bytes == sum(len(repository.files[name]) for name in wanted)


def test_the_second_time_nothing_is_downloaded(pull: Puller, repository: Repository) -> None:
    folder = pull()
    before = len(repository.asked)
    assert pull() == folder
    assert len(repository.asked) == before + 1, "the listing alone"


def test_the_cache_is_the_one_that_the_hubs_own_client_reads(pull: Puller, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    folder = pull()
    found = hub.snapshot_download("org/tiny", cache_dir=pull.cache, local_files_only=True)
    assert Path(found).resolve() == folder.resolve()


def test_a_name_that_is_served_is_downloaded_once_without_what_is_not_read(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configs alone when those are enough; then weights in safetensors and tokenizer; no pickle, and from the second
    time on nothing at all."""
    for name, value in {**pull.environment, "HF_HUB_OFFLINE": "0"}.items():
        monkeypatch.setenv(name, value)
    configs = tensorfold_find_checkpoint("org/tiny", weights=False)
    assert configs is not None and (configs / "config.json").exists()
    assert weights_asked(repository) == []
    assert tensorfold_find_checkpoint("org/tiny", weights=True) == configs
    read = {name for name in repository.files if name not in ("README.md", "pytorch_model.bin")}
    assert {file.name for file in configs.iterdir()} == read
    before = len(repository.asked)
    assert tensorfold_find_checkpoint("org/tiny", weights=True) == configs
    assert len(repository.asked) == before


def test_a_drafter_is_brought_like_a_model(pull: Puller, repository: Repository, tmp_path: Path) -> None:
    """It is run by nobody alone; what it is for is said."""
    folder = write_declared_drafter(tmp_path / "drafter", GemmaFamily(), DRAFTER_CONFIGS["gemma4"])
    repository.files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    assert (pull() / "model.safetensors").read_bytes() == repository.files["model.safetensors"]
    assert pull.said.lines[0].startswith("org/tiny drafts for a Gemma 4 of hidden size 64")
    assert pull.said.lines[0].endswith("--draft-model org/tiny")


def test_the_command_prints_where_it_is_and_what_it_does(
    pull: Puller, repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {**os.environ, **pull.environment}
    assert run(["pull", "org/tiny"], environment) == 0
    told = capsys.readouterr()
    assert Path(told.out.strip()).is_dir() and told.out.count("\n") == 1
    assert "downloading model.safetensors" in told.err
    assert run(["pull", "org/gone"], environment) == 2
    assert capsys.readouterr().err.startswith("tensorfold: org/gone cannot be pulled")


def test_cut_connections_are_taken_up_where_they_broke(pull: Puller, repository: Repository) -> None:
    size = len(repository.files["model.safetensors"])
    repository.cut = size // 5 + 1
    folder = pull()
    assert (folder / "model.safetensors").read_bytes() == repository.files["model.safetensors"]
    starts = [0 if asked is None else int(asked[6:-1]) for asked in weights_asked(repository)]
    assert starts == [number * repository.cut for number in range(5)]


def test_a_download_that_was_broken_off_goes_on_with_the_next_command(pull: Puller, repository: Repository) -> None:
    size = len(repository.files["model.safetensors"])
    whole = repository.files["model.safetensors"]
    repository.cut, repository.dies = size // 2, True
    with pytest.raises(CheckpointError, match=r"the server answers 503; [\d,]+ of [\d,]+ bytes are kept"):
        pull()
    repository.refuse.clear()
    repository.cut = None
    repository.asked.clear()
    folder = pull()
    assert weights_asked(repository) == [f"bytes={size // 2}-"]
    assert (folder / "model.safetensors").read_bytes() == whole


def test_a_server_without_ranges_is_read_from_the_beginning(pull: Puller, repository: Repository) -> None:
    blob = (
        pull.cache / "models--org--tiny" / "blobs" / hashlib.sha256(repository.files["model.safetensors"]).hexdigest()
    )
    blob.parent.mkdir(parents=True)
    blob.with_name(blob.name + downloading.PART).write_bytes(b"half of it")
    repository.ranges = False
    assert (pull() / "model.safetensors").read_bytes() == repository.files["model.safetensors"]


def test_the_token_goes_to_the_hub_and_not_to_where_it_sends_us(
    serve: Callable[[Repository], str], repository: Repository, tmp_path: Path
) -> None:
    store = Repository(dict(repository.files))
    repository.elsewhere = serve(store).replace("127.0.0.1", "localhost")
    folder = Puller(serve(repository), tmp_path / "hub", HF_TOKEN=TOKEN)()
    assert (folder / "model.safetensors").read_bytes() == repository.files["model.safetensors"]
    assert all(authorization == f"Bearer {TOKEN}" for _, _, authorization in repository.asked)
    assert [authorization for _, _, authorization in store.asked] == [None]
