"""Opening: the format by what is there, the family by its claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.contracts.arrays import A
from tensorfold.contracts.chat import ChatFormat
from tensorfold.contracts.family import Claim, Decoder, Geometry, GgufArchitecture
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.weights import Weights
from tensorfold.errors import CheckpointDamaged, CheckpointNotFound, CheckpointUnsupported
from tensorfold.testing.gguf_writer import write_gguf


class Claiming:
    """A family that claims with a score, or refuses, and is never built."""

    def __init__(self, name: str, score: int | None, refusal: str = "", gguf: tuple[str, ...] = ()) -> None:
        self.name = name
        self.gguf = tuple(GgufArchitecture(each, {}, {}, fixed={"by": name}) for each in gguf)
        self._score = score
        self._refusal = refusal

    def claim(self, config: ModelConfig) -> Claim | None:
        if self._refusal:
            raise CheckpointUnsupported(self._refusal)
        return None if self._score is None else Claim(self._score, f"by {self.name}")

    def geometry(self, config: ModelConfig) -> Geometry:
        self._never()

    def build(self, config: ModelConfig, weights: Weights[A]) -> Decoder[A]:
        self._never()

    def chat(self, config: ModelConfig) -> ChatFormat:
        self._never()

    def _never(self) -> NoReturn:
        raise AssertionError("opening builds nothing")


def test_the_highest_claim_runs_a_checkpoint(tiny_folder: Path) -> None:
    families = [Claiming("a", 10), Claiming("b", 100), Claiming("c", None), Claiming("d", 50)]
    opened = open_checkpoint(tiny_folder, families)
    assert (opened.family.name, opened.claim) == ("b", Claim(100, "by b"))
    assert opened.checkpoint.format == "safetensors"


def test_a_family_that_refuses_does_not_keep_another_from_running_it(tiny_folder: Path) -> None:
    assert open_checkpoint(tiny_folder, [Claiming("a", None, "not here"), Claiming("b", 10)]).family.name == "b"


def test_a_refusal_by_name_goes_before_the_message_that_nobody_claims(tiny_folder: Path) -> None:
    with pytest.raises(CheckpointUnsupported, match="rope_type 'odd' is not run"):
        open_checkpoint(tiny_folder, [Claiming("a", None), Claiming("b", None, "rope_type 'odd' is not run")])


def test_a_folder_that_nobody_claims_tells_what_was_looked_at(tiny_folder: Path) -> None:
    with pytest.raises(CheckpointUnsupported) as caught:
        open_checkpoint(tiny_folder, [Claiming("a", None), Claiming("b", None, gguf=("x", "y"))])
    message = str(caught.value)
    for part in ("model_type 'llama'", "LlamaForCausalLM", str(tiny_folder / "config.json"), "a, b (GGUF x, y)"):
        assert part in message


def test_a_gguf_file_is_read_by_the_rules_of_each_family_that_knows_its_architecture(tiny_gguf: Path) -> None:
    families = [Claiming("a", 10, gguf=("llama",)), Claiming("b", 20, gguf=("other", "llama")), Claiming("c", 99)]
    opened = open_checkpoint(tiny_gguf, families)
    assert opened.family.name == "b"
    assert opened.checkpoint.config.values["by"] == "b"
    assert opened.checkpoint.format == "gguf"


@pytest.mark.parametrize("metadata", [{"general.architecture": "odd"}, {}])
def test_a_gguf_file_that_nobody_knows_tells_what_was_looked_at(tmp_path: Path, metadata: dict[str, Any]) -> None:
    path = write_gguf(tmp_path / "a.gguf", metadata, {})
    with pytest.raises(CheckpointUnsupported, match=r"general.architecture '(odd)?' in .*families asked: none is"):
        open_checkpoint(path, [])


def test_nothing_at_a_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointNotFound, match=r"there is no folder or file .*gone"):
        open_checkpoint(tmp_path / "gone", [])


@pytest.mark.parametrize(
    ("name", "problem"),
    [("model.safetensors", "give its folder"), ("pytorch_model.bin", "pickle"), ("a.ckpt", "pickle")],
)
def test_a_part_of_a_folder_is_refused_with_what_to_do(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(CheckpointUnsupported, match=problem):
        open_checkpoint(tmp_path / name, [Claiming("a", 100)])


def test_weights_that_are_not_all_there_come_out_when_a_folder_is_opened(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "model.safetensors").write_bytes(b"\x10" + bytes(7) + b"{}")
    with pytest.raises(CheckpointDamaged, match="the header takes 16 bytes"):
        open_checkpoint(tmp_path, [Claiming("a", 100)])


def test_no_weight_is_read_to_open_a_folder(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: FolderCheckpoint, name: str) -> NoReturn:
        raise AssertionError(name)

    monkeypatch.setattr(FolderCheckpoint, "read", never)
    assert open_checkpoint(tiny_folder, [Claiming("a", 100)]).checkpoint.identity
