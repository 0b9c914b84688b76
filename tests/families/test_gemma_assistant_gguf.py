"""Gemma 4's drafter as a GGUF file: it guesses what the checkpoint guesses that llama.cpp's converter made it from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tensorfold.checkpoint.base import Checkpoint
from tensorfold.checkpoint.drafters import OpenDrafter, find_drafter, open_drafter
from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.checkpoint.open import OpenCheckpoint, open_checkpoint
from tensorfold.compute.loading import check_drafter
from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.backend import Session
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointDamaged, CheckpointUnsupported, WeightsMismatch
from tensorfold.testing.array_tensors import ArrayTensors
from tensorfold.testing.declared_checkpoint import declared_arrays, declared_drafter_arrays, write_declared
from tensorfold.testing.drafted_pair import DraftedPair, without_layers
from tensorfold.testing.family_configs import DRAFTER_CONFIGS, FAMILY_CONFIGS
from tensorfold.testing.gguf_drafter import ARCHITECTURE, write_assistant_gguf
from tensorfold.testing.gguf_hybrids import convert_gemma
from tensorfold.testing.gguf_writer import GgufItem, GgufTypeName, encode_tensor, write_gguf
from tensorfold.testing.tiny_gguf import write_tiny_gguf
from tensorfold_model_gemma.family import GemmaFamily

WritesPair: TypeAlias = Callable[[Path, Mapping[str, Any], Mapping[str, Any]], tuple[list[int], NDArray[np.float32]]]
Arrays: TypeAlias = dict[str, NDArray[np.float32]]

FAMILY = GemmaFamily()
TARGET, DRAFTER = FAMILY_CONFIGS["gemma4"], DRAFTER_CONFIGS["gemma4"]
Q: Any = gguf.GGMLQuantizationType


# ---- as the converter writes it ------------------------------------------------------------------------------------

STORED = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "pre_projection.weight": "nextn.pre_projection.weight",
    "post_projection.weight": "nextn.post_projection.weight",
}
OF_A_LAYER = {
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "layer_scalar": "layer_output_scale.weight",
}


def stored_name(name: str) -> str | None:
    """In the file; None: it is left out."""
    if name.startswith("masked_embedding."):
        return None
    if name in STORED:
        return STORED[name]
    layer, _, own = name.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{OF_A_LAYER[own]}"


def published(folder: Path) -> dict[str, Any]:
    """The config with the keys of published ones, of which transformers makes `per_layer_config`."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    layers = text.pop("per_layer_config", {})
    full = layers.get(str(text["num_hidden_layers"] - 1), {})
    text["global_head_dim"] = full.get("head_dim", text["head_dim"])
    text["num_global_key_value_heads"] = full.get("num_key_value_heads", text["num_key_value_heads"])
    return config


def write_metadata(writer: Any, config: Mapping[str, Any]) -> None:
    """What it says of a drafter of this config."""
    text = config["text_config"]
    slides = [each == "sliding_attention" for each in text["layer_types"]]
    ropes = text["rope_parameters"]
    writer.add_block_count(len(slides))
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(text["num_attention_heads"])
    writer.add_rope_freq_base(ropes["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    writer.add_sliding_window(text["sliding_window"])
    writer.add_shared_kv_layers(text["num_kv_shared_layers"])
    writer.add_embedding_length_per_layer_input(text["hidden_size_per_layer_input"])
    writer.add_sliding_window_pattern(slides)
    writer.add_key_length(text["global_head_dim"])
    writer.add_value_length(text["global_head_dim"])
    writer.add_key_length_swa(text["head_dim"])
    writer.add_value_length_swa(text["head_dim"])
    kv_heads, full = text["num_key_value_heads"], text["num_global_key_value_heads"]
    writer.add_head_count_kv([kv_heads if each else full for each in slides])
    writer.add_rope_dimension_count(text["global_head_dim"])
    writer.add_rope_dimension_count_swa(text["head_dim"])
    writer.add_embedding_length_out(config["backbone_hidden_size"])
    writer.add_nextn_predict_layers(len(slides))
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list([f"<{token}>" for token in range(text["vocab_size"])])


def convert(folder: Path, path: Path, type: Any = Q.F32) -> Path:
    """The folder's drafter, matrices in a type, or in F16 where their rows are no whole blocks."""
    config = published(folder)
    writer = gguf.GGUFWriter(path, ARCHITECTURE)
    write_metadata(writer, config)
    pairs = config["text_config"]["global_head_dim"] // 2
    writer.add_tensor("rope_freqs.weight", np.array([1.0] * (pairs // 4) + [1e30] * (pairs - pairs // 4), np.float32))
    block = gguf.GGML_QUANT_SIZES[type][0]
    for name, values in load_file(folder / "model.safetensors").items():
        if (stored := stored_name(name)) is not None:
            kind = Q.F32 if values.ndim == 1 else type if values.shape[-1] % block == 0 else Q.F16
            writer.add_tensor(stored, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def as_gguf(folder: Path, path: Path) -> Checkpoint:
    """The target that is in a folder, as a file of float32."""
    config = published(folder)
    metadata, tensors = convert_gemma(config, dict(load_file(folder / "model.safetensors")))
    written: dict[str, GgufItem] = {f"gemma4.{key}": value for key, value in metadata.items() if value is not None}
    blobs = {name: encode_tensor(values, "F32") for name, values in tensors.items()}
    write_gguf(path, {"general.architecture": "gemma4", **written}, blobs)
    return open_checkpoint(path, [FAMILY]).checkpoint


def paired(session: Session[Any], target: Checkpoint, drafter: Checkpoint, own: TensorSource) -> DraftedPair:
    return DraftedPair(
        session=session,
        family=FAMILY,
        target=target.config,
        weights=target,
        drafter=drafter.config,
        drafter_weights=own,
    )


def opened(path: Path) -> OpenDrafter:
    found = find_drafter(path, [FAMILY])
    assert found is not None
    return found


@pytest.mark.torch
@pytest.mark.parametrize("target_in", ["safetensors", "GGUF"])
def test_a_converted_drafter_guesses_what_the_original_does(
    tmp_path: Path, each_session: Session[Any], gemma_and_assistant: WritesPair, target_in: str
) -> None:
    """In float32 the same bits as from safetensors, and transformers' logits within 1e-4."""
    tokens, expected = gemma_and_assistant(tmp_path, {"attention_k_eq_v": True}, {})
    folder, original = FolderCheckpoint(tmp_path / "target"), FolderCheckpoint(tmp_path / "drafter")
    target = folder if target_in == "safetensors" else as_gguf(tmp_path / "target", tmp_path / "target.gguf")
    drafter = opened(convert(tmp_path / "drafter", tmp_path / "drafter.gguf")).checkpoint
    found = paired(each_session, target, drafter, drafter).guesses(tokens, len(expected))
    np.testing.assert_array_equal(
        found, paired(each_session, folder, original, original).guesses(tokens, len(expected))
    )
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=0)


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"])
def test_a_quantized_drafter_guesses_with_the_values_that_are_stored(
    tmp_path: Path, each_session: Session[Any], gemma_and_assistant: WritesPair, kind: str
) -> None:
    """As far as the backend's products of codes go; with eight bits nearly what the original does."""
    tokens, expected = gemma_and_assistant(tmp_path, {"attention_k_eq_v": True}, {})
    target = FolderCheckpoint(tmp_path / "target")
    drafter = opened(convert(tmp_path / "drafter", tmp_path / "drafter.gguf", Q[kind])).checkpoint
    kinds = {drafter.info(name).kind for name in drafter.names()}
    assert kinds == ({"F32", kind} if kind in ("F16", "BF16") else {"F32", "F16", kind})
    stored = ArrayTensors({name: drafter.read(name).f32() for name in drafter.names()})
    size = np.abs(expected[0]).mean()
    found, same = (paired(each_session, target, drafter, own).guesses(tokens, 1)[0] for own in (drafter, stored))
    assert np.abs(found - same).mean() < 0.02 * size
    assert np.abs(found - expected[0]).mean() < {"F16": 1e-2, "BF16": 2e-2, "Q8_0": 4e-2}.get(kind, 0.5) * size


@pytest.mark.torch
def test_a_drafter_with_clusters_guesses_among_all_tokens(
    tmp_path: Path, each_session: Session[Any], gemma_and_assistant: WritesPair
) -> None:
    """The converter leaves their tables out; in the clusters that would have been chosen, the logits are the same."""
    tokens, expected = gemma_and_assistant(
        tmp_path,
        {"num_kv_shared_layers": 2, "num_global_key_value_heads": 2},
        {"use_ordered_embeddings": True, "num_centroids": 20, "centroid_intermediate_top_k": 6},
    )
    target = FolderCheckpoint(tmp_path / "target")
    drafter = opened(convert(tmp_path / "drafter", tmp_path / "drafter.gguf")).checkpoint
    (found,) = paired(each_session, target, drafter, drafter).guesses(tokens, 1)
    chosen = expected[0] > expected[0].min()
    assert 0 < chosen.sum() < len(chosen)
    np.testing.assert_allclose(found[chosen], expected[0][chosen], atol=1e-4, rtol=0)
    assert np.abs(found[~chosen]).max() < 1e3


# ---- replies -------------------------------------------------------------------------------------------------------

VOCABULARY = 96


def small(config: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A config with the toy tokenizer's vocabulary, and an output head beside the embedding."""
    return {**config, "vocab_size": VOCABULARY, "tie_word_embeddings": False, **changes}


def replying(session: Session[Any], path: Path, target: Arrays, own: Arrays, type: GgufTypeName) -> DraftedPair:
    """A target, and its drafter, which is written to a file."""
    text = small(DRAFTER["text_config"], hidden_size=own["model.norm.weight"].size)
    written = {**DRAFTER, "text_config": text}
    file = write_assistant_gguf(path, written, own, type, metadata={"vocab_size": VOCABULARY})
    drafter = opened(file).checkpoint
    return DraftedPair(
        session=session,
        family=FAMILY,
        target=ModelConfig(small(TARGET), {}, "config.json"),
        weights=ArrayTensors(target),
        drafter=drafter.config,
        drafter_weights=drafter,
    )


def drafter_arrays(**changes: Any) -> Arrays:
    """Of a drafter whose head is its embedding."""
    text = small(DRAFTER["text_config"], **changes)
    return declared_drafter_arrays(FAMILY, {**DRAFTER, "tie_word_embeddings": True, "text_config": text})


@pytest.mark.parametrize("type", ["F32", "Q8_0", "Q4_0"])
def test_replies_drafted_by_it_are_the_serial_ones(
    tmp_path: Path, each_session: Session[Any], type: GgufTypeName
) -> None:
    """A drafter that knows nothing: wrong guesses at every length, alone and together."""
    target = declared_arrays(FAMILY, small(TARGET))
    pair = replying(each_session, tmp_path / "drafter.gguf", target, drafter_arrays(), type)
    assert all(answer.usage.drafted_tokens > 15 for answer in pair.drafted(40))


@pytest.mark.parametrize("type", ["F32", "Q8_0"])
def test_what_a_drafter_that_copies_its_target_guesses_is_taken(
    tmp_path: Path, each_session: Session[Any], type: GgufTypeName
) -> None:
    """The target's layers add nothing, so that the next token follows from the last; with eight bits mostly."""
    hidden = TARGET["hidden_size"]
    target, own = declared_arrays(FAMILY, small(TARGET)), drafter_arrays(hidden_size=hidden)
    without_layers(target, own)
    # The embedding, which is the first half, is passed on as it is.
    own["pre_projection.weight"] = np.eye(hidden, 2 * hidden, dtype=np.float32)
    own["model.norm.weight"] = target["model.norm.weight"]
    own["model.embed_tokens.weight"] = target["lm_head.weight"]
    pair = replying(each_session, tmp_path / "drafter.gguf", target, own, type)
    for answer in pair.drafted(31):
        assert answer.usage.drafted_tokens >= 18
        assert answer.usage.accepted_tokens > answer.usage.drafted_tokens // 2
        assert type != "F32" or answer.usage.accepted_tokens == answer.usage.drafted_tokens


# ---- what is refused -----------------------------------------------------------------------------------------------


def drafter_file(path: Path, **metadata: GgufItem | None) -> Path:
    """A drafter of random weights, for the target of random weights; its metadata with `__` for dots."""
    changes = {key.replace("__", "."): value for key, value in metadata.items()}
    return write_assistant_gguf(path, DRAFTER, declared_drafter_arrays(FAMILY, DRAFTER), metadata=changes)


@pytest.fixture
def target(tmp_path: Path) -> OpenCheckpoint:
    """The one that the drafter was made for."""
    return open_checkpoint(write_declared(tmp_path / "target", FAMILY, TARGET), [FAMILY])


def test_it_is_told_apart_from_a_model(tmp_path: Path) -> None:
    """By its architecture; other files are no drafters, and a drafter is not served alone."""
    path = drafter_file(tmp_path / "drafter.gguf")
    assert opened(path).drafter.target.startswith("a Gemma 4 of hidden size 64, with a vocabulary of 320 tokens")
    assert find_drafter(write_tiny_gguf(tmp_path / "llama.gguf"), [FAMILY]) is None
    assert find_drafter(tmp_path / "nothing.gguf", [FAMILY]) is None
    with pytest.raises(CheckpointUnsupported, match=r"drafter.gguf: .*a drafter.*--draft-model"):
        open_checkpoint(path, [FAMILY])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"embedding_length_out": None}, "must say embedding_length_out"),
        ({"attention__sliding_window": None}, r"must say attention\.sliding_window"),
        ({"attention__sliding_window_pattern": None}, "sliding_window_pattern"),
        ({"attention__sliding_window_pattern": np.zeros(0, bool)}, "sliding_window_pattern"),
        ({"rope__freq_base_swa": None}, r"must say rope\.freq_base_swa"),
        ({"nextn_predict_layers": 1}, "nextn_predict_layers is 1, and all 2 layers"),
        ({"feed_forward_length": np.array([48, 96], np.int32)}, "feed_forward_length"),
        ({"embedding_length_per_layer_input": 16}, "hidden_size_per_layer_input is 16"),
        ({"expert_count": 4}, "enable_moe_block is True"),
        ({"attention__shared_kv_layers": 1}, "num_kv_shared_layers is 1"),
        ({"embedding_length_out": 128}, "backbone_hidden_size is 128, and the target's is 64"),
        ({"attention__sliding_window": 23}, "sliding_window is 23, and the target's is 24"),
        ({"attention__key_length": 64}, "head_dim of a full_attention layer is 64, and the target's is 32"),
        ({"attention__head_count_kv": np.array([2, 2], np.int32)}, "num_key_value_heads of a full_attention layer"),
        ({"rope__freq_base": 5000.0}, "rope_parameters of full_attention"),
        ({"vocab_size": 319}, "vocab_size is 319, and the target's is 320"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_or_is_not_run_is_refused_by_name(
    tmp_path: Path, target: OpenCheckpoint, changes: dict[str, Any], named: str
) -> None:
    """Before a weight is read, and with the file that says it."""
    path = drafter_file(tmp_path / "drafter.gguf", **changes)
    with pytest.raises(CheckpointUnsupported, match=rf"drafter\.gguf: .*{named}"):
        open_drafter(path, target)


def test_other_files_are_refused_as_drafters(tmp_path: Path, target: OpenCheckpoint) -> None:
    """Of another architecture, a Gemma 4 itself, and of another format."""
    with pytest.raises(CheckpointUnsupported, match=r"architecture is 'llama', and the gemma family reads gemma3, gem"):
        open_drafter(write_tiny_gguf(tmp_path / "llama.gguf"), target)
    as_gguf(target.checkpoint.path, tmp_path / "gemma.gguf")
    with pytest.raises(CheckpointUnsupported, match="what drafts for a Gemma 4 is 'gemma4_assistant'"):
        open_drafter(tmp_path / "gemma.gguf", target)
    with pytest.raises(CheckpointUnsupported, match="give its folder"):
        open_drafter(target.checkpoint.path / "model.safetensors", target)
    (tmp_path / "words.gguf").write_bytes(b"words" * 9)
    with pytest.raises(CheckpointDamaged, match="begins with"):
        open_drafter(tmp_path / "words.gguf", target)


def test_tensors_that_are_not_read_are_named_or_left(tmp_path: Path) -> None:
    """A head of its own is no part of the format; tables of clusters are left."""

    def names(extra: Iterable[str]) -> set[str]:
        row = np.zeros((1, 32), np.float32)
        path = write_assistant_gguf(
            tmp_path / "drafter.gguf",
            DRAFTER,
            declared_drafter_arrays(FAMILY, DRAFTER),
            tensors={name: encode_tensor(row, "F32") for name in extra},
        )
        checkpoint = opened(path).checkpoint
        return set(checkpoint.names()) - {each.name for each in check_drafter(FAMILY, checkpoint.config, checkpoint)}

    tables = {"masked_embd_centroids.weight", "masked_embd_ordering"}
    assert names(tables) == {"masked_embedding.centroids.weight", "masked_embedding.token_ordering"}
    for foreign in ("output.weight", "blk.0.attn_k.weight"):
        with pytest.raises(WeightsMismatch, match=foreign):
            names({foreign})
