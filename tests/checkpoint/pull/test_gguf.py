"""GGUF files are chosen by their names and told by their first bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorfold.checkpoint.gguf_reader import GgufFile
from tensorfold.errors import CheckpointNotFound, CheckpointUnsupported
from tensorfold.testing.declared_checkpoint import declared_drafter_arrays
from tensorfold.testing.family_configs import DRAFTER_CONFIGS
from tensorfold.testing.gguf_drafter import write_assistant_gguf
from tensorfold.testing.tiny_gguf import write_tiny_gguf
from tensorfold_extra_checkpoints import tensorfold_list_checkpoints
from tensorfold_model_gemma.family import GemmaFamily

from .hub import Repository
from .puller import Puller


def test_gguf_files_are_chosen_by_their_names(pull: Puller, repository: Repository, monkeypatch: Any) -> None:
    repository.files = {"tiny-Q4_0.gguf": b"four", "tiny-Q8_0.gguf": b"eight", "README.md": b"words"}
    with pytest.raises(CheckpointNotFound, match=r"choose one with --file, of tiny-Q4_0.gguf, tiny-Q8_0.gguf"):
        pull()
    with pytest.raises(CheckpointNotFound, match=r"has no file \*F16\*; it has tiny-Q4_0"):
        pull(files=("*F16*",))
    file = pull(files=("*Q8_0.gguf",))
    assert (file.name, file.read_bytes()) == ("tiny-Q8_0.gguf", b"eight")
    monkeypatch.setenv("HF_HUB_CACHE", str(pull.cache))
    (listed,) = [each for each in tensorfold_list_checkpoints() if each.source == "Hub cache"]
    assert listed.name == str(file)


def gguf(path: Path, **changed: str) -> bytes:
    """A tiny file, in whose header texts are changed for others of the same length."""
    content = write_tiny_gguf(path).read_bytes()
    for old, new in changed.items():
        assert len(old) == len(new) and old.encode() in content
        content = content.replace(old.encode(), new.encode())
    return content


def test_a_gguf_file_that_cannot_be_run_is_refused_by_its_first_bytes(
    pull: Puller, repository: Repository, tmp_path: Path
) -> None:
    good = gguf(tmp_path / "tiny.gguf")
    pull.head = len(good) // 2
    repository.files = {"good.gguf": good, "bad.gguf": gguf(tmp_path / "bad.gguf", llama="abaci")}
    assert pull(files=("good.gguf",)).read_bytes() == good
    (said,) = pull.said.lines
    assert said.startswith("good.gguf is run by llama: ")
    repository.asked.clear()
    with pytest.raises(
        CheckpointUnsupported, match=r"no model family runs this checkpoint: looked at .*abaci.* in bad"
    ):
        pull(files=("bad.gguf",))
    assert "bad.gguf" not in pull.said.begun


def test_a_drafter_in_a_gguf_file_is_told_by_its_first_bytes(
    pull: Puller, repository: Repository, tmp_path: Path
) -> None:
    """What it is for is said; numbers that lie further behind and are asked for are no reason to refuse it."""
    config = DRAFTER_CONFIGS["gemma4"]
    arrays = declared_drafter_arrays(GemmaFamily(), config)
    good = write_assistant_gguf(tmp_path / "good.gguf", config, arrays).read_bytes()
    bad = write_assistant_gguf(tmp_path / "bad.gguf", config, arrays, metadata={"nextn_predict_layers": 1}).read_bytes()
    start = GgufFile(tmp_path / "good.gguf").tensors["rope_freqs.weight"].offset
    repository.files = {"good.gguf": good, "again.gguf": good, "bad.gguf": bad}
    pull.head = start + 4096
    assert pull(files=("good.gguf",)).read_bytes() == good
    (said,) = pull.said.lines
    assert said.startswith("good.gguf drafts for a Gemma 4 of hidden size 64") and said.endswith("as --draft-model")
    with pytest.raises(CheckpointUnsupported, match=r"^bad\.gguf: nextn_predict_layers is 1"):
        pull(files=("bad.gguf",))
    pull.head = start
    repository.files["again.gguf"] = good + bytes(32)
    assert pull(files=("again.gguf",)).read_bytes() == good + bytes(32)


def test_first_bytes_that_do_not_tell_are_no_reason_to_refuse(
    pull: Puller, repository: Repository, tmp_path: Path
) -> None:
    good = gguf(tmp_path / "tiny.gguf")
    pull.head = 100
    repository.files = {"model-00001-of-00002.gguf": good, "model-00002-of-00002.gguf": good[::-1]}
    pull(files=("*.gguf",))
    assert pull.said.begun == ["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"]
