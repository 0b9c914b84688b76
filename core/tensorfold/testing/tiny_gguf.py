"""Tiny checkpoints as GGUF files, named and permuted as llama.cpp's converter does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tensorfold.testing.gguf_writer import GgufBlob, GgufItem, GgufTypeName, encode_tensor, write_gguf
from tensorfold.testing.tiny import TinyModel, tiny_weights
from tensorfold.testing.tiny_tokenizer import CHAT_TEMPLATE, CONTROL_TOKENS, TINY_VOCABULARY, tiny_vocabulary

__all__ = ["tiny_metadata", "write_tiny_gguf"]

_TOP: Final[Mapping[str, str]] = MappingProxyType(
    {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
)
_MODULES: Final[Mapping[str, str]] = MappingProxyType(
    {
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
)


def write_tiny_gguf(path: Path, model: TinyModel | None = None, *, type: GgufTypeName = "F32") -> Path:
    """Write a checkpoint with its matrices in a type and its vectors in F32; returns the path.

    Mistral models are stored as llama, without their window, as llama.cpp does.
    """
    model = TinyModel() if model is None else model
    tensors: dict[str, GgufBlob] = {}
    for name, values in tiny_weights(model).items():
        stored = encode_tensor(_permuted(name, values, model), type if values.ndim > 1 else "F32")
        tensors[_gguf_name(name)] = stored
    return write_gguf(path, tiny_metadata(model), tensors)


def tiny_metadata(model: TinyModel) -> dict[str, GgufItem]:
    """Its metadata, vocabulary included."""
    architecture = _architecture(model)
    tokens, merges = tiny_vocabulary()
    first = TINY_VOCABULARY - len(CONTROL_TOKENS)
    shape: dict[str, GgufItem] = {
        "vocab_size": TINY_VOCABULARY,
        "context_length": model.window,
        "embedding_length": model.hidden,
        "block_count": model.layers,
        "feed_forward_length": model.width,
        "attention.head_count": model.heads,
        "attention.head_count_kv": model.kv_heads,
        "attention.key_length": model.head_size,
        "attention.value_length": model.head_size,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "rope.dimension_count": model.head_size,
    }
    return {
        "general.architecture": architecture,
        "general.name": f"tiny {model.model_type}",
        **{f"{architecture}.{key}": value for key, value in shape.items()},
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([1] * first + [3] * len(CONTROL_TOKENS), np.int32),
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in merges],
        "tokenizer.ggml.bos_token_id": first,
        "tokenizer.ggml.eos_token_id": first + 2,
        "tokenizer.ggml.eot_token_id": first,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
        "general.sampling.temp": 0.8,
        "general.sampling.top_p": 0.95,
    }


def _architecture(model: TinyModel) -> str:
    return "llama" if model.model_type == "mistral" else model.model_type


def _gguf_name(name: str) -> str:
    if name in _TOP:
        return _TOP[name]
    _, _, layer, *module, kind = name.split(".")
    return f"blk.{layer}.{_MODULES['.'.join(module)]}.{kind}"


def _permuted(name: str, values: NDArray[np.float32], model: TinyModel) -> NDArray[np.float32]:
    """Query and key rows of llama: from half-split rotation to pairs of neighbours, head by head."""
    heads = {"q_proj": model.heads, "k_proj": model.kv_heads}.get(name.split(".")[-2])
    if heads is None or _architecture(model) != "llama":
        return values
    return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
