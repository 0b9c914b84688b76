"""`tensorfold info` tells what a checkpoint is from its config, and from its headers where they are there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tensorfold.cli.program import run
from tensorfold.testing.declared_checkpoint import declared_drafter_arrays, write_declared, write_declared_drafter
from tensorfold.testing.family_configs import DRAFTER_CONFIGS, FAMILY_CONFIGS
from tensorfold.testing.gguf_drafter import write_assistant_gguf
from tensorfold.testing.gguf_writer import encode_tensor
from tensorfold.testing.quantized import mlx_affine
from tensorfold.testing.safetensors_writer import Stored, write_stored
from tensorfold.testing.tiny import TinyModel, tiny_config, tiny_weights, write_texts, write_tiny
from tensorfold_model_gemma.family import GemmaFamily
from tensorfold_model_glm.family import GlmFamily
from tensorfold_model_qwen.family import QwenFamily

PUBLISHED = Path(__file__).parent / "published"

SIZES: dict[str, tuple[str, float, float, float, int, int, int]] = {
    "qwen3.8-27b": ("qwen", 26.90, 64, 147, 64, 262144, 248320),
    # 12 sparse layers, in bfloat16: keys and values of 2 heads of 256 are 12 x 2 x 2 x 256 x 2 bytes = 24 KiB a position.
    # An indexer reads one key of 128 for each block of 4, the mean of theirs, normed and rotated as the first of them is:
    # 12 x 128 x 2 bytes / 4 = 3/4 KiB. Keeping all raw keys, as transformers does, would make it 24 + 3 = 27 KiB.
    "qwen3.8-flash-next": ("flash_next", 176.94, 24 + 3 / 4, 110, 48, 262144, 248320),
    "glm-5.3": ("glm", 743.38, 93, 0, 78, 1048576, 154880),
    "nemotron-3.5-lightning": ("nemotron", 31.58, 6, 47, 52, 262144, 131072),
    "gemma-4-31b": ("gemma", 30.70, 80, 799, 60, 262144, 262144),
    "gemma-4-26b-a4b": ("gemma", 25.23, 20, 200, 30, 262144, 262144),
}
"""Family, billions of weights, KiB a token, MiB a sequence, layers, window, vocabulary."""


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict[str, Any]:
    assert run(["info", "--json", *map(str, arguments)], {}) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def text(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert run(["info", *map(str, arguments)], {}) == 0
    return capsys.readouterr().out


def published(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    shutil.copy(PUBLISHED / f"{name}.json", folder / "config.json")
    return folder


@pytest.mark.parametrize("name", SIZES)
def test_a_config_alone_tells_what_is_known_of_the_published_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    family, billions, token, sequence, layers, window, vocabulary = SIZES[name]
    found = told(capsys, published(tmp_path, name))
    assert (found["family"], found["layers"], found["window"], found["vocabulary"]) == (
        family,
        layers,
        window,
        vocabulary,
    )
    assert round(found["parameters"] / 1e9, 2) == billions
    assert found["bytes_per_token"] == token * 1024
    assert round(found["bytes_per_sequence"] / 2**20) == sequence
    assert found["claims"][0]["score"] == 100 and "model_type" in found["reason"]
    assert found["stored"] is None and found["dtype"] == "bfloat16"


def test_the_memory_is_that_of_the_asked_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights as they are stored or in the config's type; states of one sequence, the draft head's included."""
    folder = published(tmp_path, "qwen3.8-27b")
    found = told(capsys, folder, "--context", "4096")
    assert found["memory"]["context"] == 4096
    assert found["memory"]["weights"] == 2 * (found["parameters"] + found["draft_parameters"])
    states = 4096 * (found["bytes_per_token"] + found["draft_bytes_per_token"]) + found["bytes_per_sequence"]
    assert found["memory"]["states"] == states
    assert found["memory"]["total"] == found["memory"]["weights"] + states
    whole = told(capsys, folder)["memory"]
    assert whole["context"] == 262144 and whole["states"] > states
    shown = text(capsys, folder, "--context", "4096")
    assert "26.90 billion, and 0.42 billion of the draft head" in shown
    assert "64 KiB a token, 146.8 MiB a sequence" in shown and "for a sequence of 4096 tokens" in shown


def test_what_is_left_of_a_checkpoint_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the config: the vision tower; from the files: every module that is not read."""
    folder = published(tmp_path, "qwen3.8-27b")
    assert told(capsys, folder)["left"] == ["vision"]
    assert "the vision tower" in text(capsys, folder)
    written = tmp_path / "tiny"
    arrays = tiny_weights(TinyModel())
    write_texts(written, tiny_config(TinyModel()))
    stored = {name: Stored("F32", each) for name, each in arrays.items()}
    write_stored(written / "model.safetensors", stored)
    assert told(capsys, written)["left"] == {}


def test_the_files_tell_how_weights_are_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = TinyModel()
    arrays = tiny_weights(model)
    name = "model.layers.0.mlp.up_proj.weight"
    stored = {each: Stored("F32", values) for each, values in arrays.items() if each != name}
    stored |= mlx_affine(name.removesuffix(".weight"), arrays[name], bits=4, group=32).stored
    write_texts(tmp_path, {**tiny_config(model), "quantization": {"bits": 4, "group_size": 32}})
    write_stored(tmp_path / "model.safetensors", stored)
    found = told(capsys, tmp_path)
    assert found["stored"]["tensors"] == {"F32": len(arrays) - 1, "4-bit groups of 32": 1}
    assert found["stored"]["bytes"] == sum(each.values.nbytes for each in stored.values()) == found["memory"]["weights"]
    assert found["parameters"] == sum(each.size for each in arrays.values())
    assert "F32 (20 tensors), 4-bit groups of 32 (1)" in text(capsys, tmp_path)


def test_a_draft_head_that_was_dropped_is_not_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The config alone tells of one; the files show that it is not there."""
    for name, family, kind in (("q", QwenFamily(), "qwen3_5"), ("g", GlmFamily(), "glm_moe_dsa")):
        whole = told(capsys, write_declared(tmp_path / f"{name}-whole", family, FAMILY_CONFIGS[kind]))
        assert whole["draft_parameters"] > 0 < whole["draft_bytes_per_token"] and whole["left"] == {}
        dropped = write_declared(tmp_path / f"{name}-dropped", family, FAMILY_CONFIGS[kind], draft=False)
        found = told(capsys, dropped)
        assert (found["draft_parameters"], found["draft_bytes_per_token"]) == (0, 0)
        assert found["parameters"] == whole["parameters"]
        assert "draft head" not in text(capsys, dropped)


def test_weights_that_do_not_fit_are_told_and_not_fatal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tiny(tmp_path, TinyModel())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 128}))
    found = told(capsys, tmp_path)
    assert found["stored"] is None and "mlp.up_proj.weight" in found["problem"]
    assert "they do not fit" in text(capsys, tmp_path)


def test_defaults_come_from_the_generation_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, write_tiny(tmp_path))
    assert found["sampling"]["temperature"] == 0.8 and found["sampling"]["top_p"] == 0.95
    assert found["stop_ids"] and found["capabilities"] == []
    assert "temperature 0.8, top p 0.95" in text(capsys, tmp_path)


# ---- drafters in checkpoints of their own --------------------------------------------------------------------------


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """A Gemma 4 and its drafter."""
    model = write_declared(tmp_path / "gemma", GemmaFamily(), FAMILY_CONFIGS["gemma4"])
    return model, write_declared_drafter(tmp_path / "drafter", GemmaFamily(), DRAFTER_CONFIGS["gemma4"])


def test_a_drafter_is_told_to_be_one(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """For which models, with the keys that any checkpoint has; it has no states."""
    _, drafter = pair
    found = told(capsys, drafter)
    elements = sum(each.size for each in load_file(drafter / "model.safetensors").values())
    assert (found["name"], found["family"], found["layers"], found["hidden"]) == ("drafter", "gemma", 2, 32)
    assert found["drafts_for"].startswith("a Gemma 4 of hidden size 64")
    assert found["parameters"] == elements
    assert found["memory"] == {"weights": 4 * elements, "states": 0, "total": 4 * elements}
    assert (found["bytes_per_token"], found["bytes_per_sequence"]) == (0, 0)
    assert found["stored"]["bytes"] == 4 * elements and found["problem"] is None
    shown = text(capsys, drafter)
    assert "drafts for" in shown and f"--draft-model {drafter}" in shown and f"{elements:,}" in shown


def test_a_drafter_is_told_of_beside_its_model(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Its weights count in the memory, and what it is stands under a key of its own."""
    model, drafter = pair
    alone, found = told(capsys, model), told(capsys, model, "--draft-model", drafter)
    assert alone["drafter"] is None and alone["memory"]["drafter"] == 0
    assert found["drafter"] == {key: each for key, each in told(capsys, drafter).items() if key != "name"}
    assert found["memory"]["total"] == alone["memory"]["total"] + found["drafter"]["memory"]["weights"]
    assert str(drafter) in text(capsys, model, "--draft-model", drafter)


def test_a_drafters_config_alone_tells_of_it(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Its weights are counted in the config's type; what does not fit is told where they are there."""
    _, drafter = pair
    file = drafter / "model.safetensors"
    parameters = told(capsys, drafter)["parameters"]
    stored = file.read_bytes()
    file.unlink()
    found = told(capsys, drafter)
    assert (found["parameters"], found["stored"]) == (parameters, None)
    assert found["memory"]["weights"] == 2 * parameters and found["dtype"] == "bfloat16"
    file.write_bytes(stored.replace(b"pre_projection", b"any_projection"))
    assert "pre_projection.weight is missing" in told(capsys, drafter)["problem"]
    assert "they do not fit" in text(capsys, drafter)


def test_a_drafter_in_a_gguf_file_is_told_of(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one in a folder is, alone and beside its model; what its types take, and tables that are left."""
    model, folder = pair
    family, config = GemmaFamily(), DRAFTER_CONFIGS["gemma4"]
    tables = {"masked_embd_ordering": encode_tensor(np.zeros(2, np.float32), "F32")}
    file = write_assistant_gguf(
        tmp_path / "drafter.gguf", config, declared_drafter_arrays(family, config), "Q8_0", tensors=tables
    )
    found, original = told(capsys, file), told(capsys, folder)
    for key in ("family", "drafts_for", "parameters", "layers", "hidden", "vocabulary", "bytes_per_token"):
        assert found[key] == original[key]
    assert set(found["stored"]["tensors"]) == {"F32", "Q8_0"} and found["problem"] is None
    assert found["stored"]["bytes"] == found["memory"]["weights"] < original["memory"]["weights"] / 2
    assert found["left"] == {"masked_embedding": 1}
    shown = text(capsys, file)
    assert f"--draft-model {file}" in shown and "masked_embedding (1 tensors)" in shown
    beside = told(capsys, model, "--draft-model", file)
    assert beside["drafter"] == {key: each for key, each in found.items() if key != "name"}
    small = write_assistant_gguf(
        tmp_path / "small.gguf",
        config,
        declared_drafter_arrays(family, config),
        metadata={"embedding_length_out": 32},
    )
    assert run(["info", str(model), "--draft-model", str(small)], {}) == 2
    assert "small.gguf: backbone_hidden_size is 32, and the target's is 64" in capsys.readouterr().err


def test_a_drafter_that_does_not_fit_is_refused(
    pair: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a start would refuse it; and a drafter alone has no states to tell the memory of."""
    model, drafter = pair
    assert run(["info", str(write_tiny(tmp_path / "tiny")), "--draft-model", str(drafter)], {}) == 2
    assert "the llama family has no drafters" in capsys.readouterr().err
    assert run(["info", str(model), "--draft-model", str(model)], {}) == 2
    assert "'gemma4_assistant'" in capsys.readouterr().err
    assert run(["info", str(drafter), "--context", "16"], {}) == 2
    assert "a drafter has no states" in capsys.readouterr().err


def test_what_cannot_be_told_is_refused_as_it_would_be_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No such folder, a window beyond the checkpoint's, a config that nobody runs."""
    assert run(["info", str(tmp_path / "nothing")], {}) == 2
    assert "nothing" in capsys.readouterr().err
    assert run(["info", str(write_tiny(tmp_path / "m")), "--context", "9999"], {}) == 2
    assert "--context is 9999" in capsys.readouterr().err
    (tmp_path / "m" / "config.json").write_text('{"model_type": "no-such-model"}')
    assert run(["info", str(tmp_path / "m")], {}) == 2
    assert "no model family runs this checkpoint" in capsys.readouterr().err
