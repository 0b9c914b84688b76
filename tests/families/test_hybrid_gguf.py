"""GGUF files of models with several kinds of layers: what llama.cpp's converter does to them is undone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tensorfold.checkpoint.open import OpenCheckpoint, open_checkpoint
from tensorfold.compute.loading import check_weights
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported
from tensorfold.testing.array_tensors import ArrayTensors
from tensorfold.testing.declared_checkpoint import declared_arrays
from tensorfold.testing.family_configs import FAMILY_CONFIGS
from tensorfold.testing.gguf_hybrids import Arrays, Converted, convert_gemma, convert_nemotron, convert_qwen
from tensorfold.testing.gguf_writer import GgufBlob, GgufItem, GgufTypeName, encode_tensor, write_gguf
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.tiny import TinyModel
from tensorfold.testing.tiny_gguf import tiny_metadata
from tensorfold.testing.ways import Loaded, serial_reply
from tensorfold_model_gemma.family import GemmaFamily
from tensorfold_model_nemotron.family import NemotronFamily
from tensorfold_model_qwen.family import QwenFamily

TOKENS = (3, 4, 5, 9, 20)


# ---- the files ----------------------------------------------------------------------------------------------

Convert = Callable[[Mapping[str, Any], Arrays], Converted]
CASES: dict[str, tuple[str, ModelFamily, Convert, dict[str, Any]]] = {
    "qwen": ("qwen35", QwenFamily(), convert_qwen, {**FAMILY_CONFIGS["qwen3_5"], "full_attention_interval": 2}),
    "qwen without a draft head, wide heads": (
        "qwen35",
        QwenFamily(),
        convert_qwen,
        {**FAMILY_CONFIGS["qwen3_5"], "mtp_num_hidden_layers": 0, "linear_value_head_dim": 32},
    ),
    "qwen with experts": ("qwen35moe", QwenFamily(), convert_qwen, dict(FAMILY_CONFIGS["qwen3_5_moe"])),
    "nemotron": (
        "nemotron_h",
        NemotronFamily(),
        convert_nemotron,
        {**FAMILY_CONFIGS["nemotron_h"], "hybrid_override_pattern": "M-M*-", "num_nextn_predict_layers": 0},
    ),
    "nemotron with experts": (
        "nemotron_h_moe",
        NemotronFamily(),
        convert_nemotron,
        {**FAMILY_CONFIGS["nemotron_h"], "hybrid_override_pattern": "MEM*E"},
    ),
    "gemma 4": ("gemma4", GemmaFamily(), convert_gemma, dict(FAMILY_CONFIGS["gemma4"])),
    "gemma 4 with experts": ("gemma4", GemmaFamily(), convert_gemma, dict(FAMILY_CONFIGS["gemma4, experts"])),
    "gemma 4 E": ("gemma4", GemmaFamily(), convert_gemma, dict(FAMILY_CONFIGS["gemma4, E"])),
}


def written(
    path: Path, case: str, type: GgufTypeName = "F32", **changes: GgufItem | None
) -> tuple[OpenCheckpoint, Arrays]:
    """The opened file, and the tensors that it was converted from."""
    architecture, family, convert, config = CASES[case]
    arrays = declared_arrays(family, config)
    metadata, tensors = convert(config, arrays)
    metadata |= {key.replace("__", "."): value for key, value in changes.items() if value is not None}
    for key in (key.replace("__", ".") for key, value in changes.items() if value is None):
        del metadata[key]
    vocabulary = {key: each for key, each in tiny_metadata(TinyModel()).items() if not key.startswith("llama.")}
    blobs: dict[str, GgufBlob] = {}
    for name, values in tensors.items():
        whole = (
            values.ndim == 1
            or values.shape[-1] % 32
            or "conv1d" in name
            or "_a" in name[-2:]
            or "norm" in name
            or "gate_inp" in name
        )
        blobs[name] = encode_tensor(values, "F32" if whole else type)
    write_gguf(
        path,
        {
            **vocabulary,
            "general.architecture": architecture,
            **{f"{architecture}.{key}": value for key, value in metadata.items()},
        },
        blobs,
    )
    return open_checkpoint(path, [family]), arrays


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_is_that_of_the_checkpoint_it_was_converted_from(tmp_path: Path, case: str) -> None:
    opened, arrays = written(tmp_path / "model.gguf", case)
    read = {
        info.name: opened.checkpoint.read(info.name).f32()
        for info in check_weights(opened.family, opened.checkpoint.config, opened.checkpoint)
    }
    seen = 0
    for name, values in arrays.items():
        found = read.get(name.replace("model.", "backbone.", 1) if "nemotron" in case else name)
        if found is None:
            continue
        seen += values.size
        assert np.allclose(found.reshape(values.shape), values, rtol=1e-6, atol=1e-7), name
    experts = sum(values.size for name, values in arrays.items() if ".experts." in name)
    assert seen + experts == sum(values.size for values in arrays.values())


@pytest.mark.parametrize("type", ["F32", "Q8_0"])
@pytest.mark.parametrize("case", CASES)
def test_a_converted_model_replies_as_the_original(
    tmp_path: Path, case: str, type: GgufTypeName, each_session: Session[Any]
) -> None:
    """Greedy and token for token in F32, its draft head included; nearly so with eight bits."""
    opened, arrays = written(tmp_path / "model.gguf", case, type)
    _, family, _, config = CASES[case]
    given = ModelConfig(config, {}, "config.json")
    loaded = Loaded(family, opened.checkpoint.config, opened.checkpoint, each_session)
    original = Loaded(family, given, ArrayTensors(arrays), each_session)
    assert (loaded.decoder.draft is None) == (original.decoder.draft is None)
    assert loaded.geometry.states == original.geometry.states
    assert (loaded.geometry.window, loaded.geometry.vocabulary) == (512, original.geometry.vocabulary)
    reply, expected = (serial_reply(each, TOKENS, 10) for each in (loaded, original))
    if type == "F32":
        assert reply.tokens == expected.tokens
        assert np.abs(reply.logits - expected.logits).max() < 1e-3
    else:
        assert np.abs(reply.logits[0] - expected.logits[0]).mean() < 0.2 * np.abs(expected.logits[0]).mean()


LLAMACPP = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.n_ctx, params.n_parallel, params.n_gpu_layers, params.port = 512, 1, 0, 0
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(params)
print("LISTENING", server.listening_address, flush=True)
threading.Event().wait()
"""


@contextmanager
def llamacpp(path: Path) -> Iterator[str]:
    """llama.cpp's own server on a file; its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", LLAMACPP, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        # What it logs is read by nobody until it ends, and is little.
        line = next((line for line in process.stdout if line.startswith("LISTENING")), None)
        assert line is not None, process.stderr.read()[-2000:]
        yield line.split()[1]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs llama.cpp: pip install xllamacpp")
@pytest.mark.parametrize("case", [case for case in CASES if "wide heads" not in case])
def test_llamacpp_replies_to_the_same_file_as_we_do(tmp_path: Path, case: str) -> None:
    """Behind a prompt that is longer than any window: token for token, until two are about equally likely to both.

    Its GELU is read from a table of half floats, which moves logits, of a spread of 1, by some hundredths; without that
    they are the same but for rounding. Heads of another width than their keys it does not read.
    """
    path = tmp_path / "model.gguf"
    opened, _ = written(path, case)
    session = ReferenceBackend().open(BackendSettings())
    loaded = Loaded(opened.family, opened.checkpoint.config, opened.checkpoint, session)
    near = 0.05 if "gemma" in case else 0.001
    seen = 0
    with llamacpp(path) as address:
        for seed in range(4):
            prompt = tuple(int(each) for each in np.random.default_rng(seed).integers(3, 250, 70))
            body = {"prompt": prompt, "n_predict": 16, "temperature": 0, "return_tokens": True}
            theirs = httpx.post(f"{address}/completion", json=body, timeout=60).json()["tokens"]
            ours = serial_reply(loaded, prompt, 16)
            # It ends at a token that ends replies.
            for logits, token, other in zip(ours.logits, ours.tokens, theirs, strict=False):
                if token != other:
                    assert logits[token] - logits[other] < near * logits.std()
                    break
                seen += 1
    assert seen >= 16


@pytest.mark.parametrize(
    ("case", "changes", "named"),
    [
        ("qwen", {"ssm__inner_size": None}, "ssm.inner_size"),
        ("qwen", {"nextn_predict_layers": 2}, "nextn_predict_layers is 2"),
        ("nemotron", {"attention__head_count_kv": 2}, "attention.head_count_kv"),
        ("nemotron", {"nextn_predict_layers": 3}, "nextn_predict_layers is 3"),
        ("gemma 4", {"attention__sliding_window_pattern": None}, "sliding_window_pattern"),
        ("gemma 4", {"attention__head_count_kv": np.array([1, 2, 2, 1], np.int32)}, "head_count_kv"),
        ("gemma 4", {"feed_forward_length": np.array([96, 96, 64, 96], np.int32)}, "feed_forward_length"),
        ("gemma 4", {"rope__freq_base_swa": None}, "rope.freq_base_swa"),
    ],
)
def test_a_file_that_does_not_say_enough_or_says_too_much_is_refused_by_key(
    tmp_path: Path, case: str, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(CheckpointUnsupported, match=named):
        written(tmp_path / "model.gguf", case, **changes)
