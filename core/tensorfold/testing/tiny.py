"""Tiny random checkpoints: whole Hugging Face folders of a few hundred kilobytes, written with numpy alone.

They have what real ones have (config, generation config, safetensors in one file or in shards, tokenizer, chat template)
and lively logits: a greedy reply is not one token over and over. `python -m tensorfold.testing.tiny FOLDER` writes one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.testing.safetensors_writer import StoredType, write_safetensors
from tensorfold.testing.tiny_tokenizer import CHAT_TEMPLATE, CONTROL_TOKENS, TINY_VOCABULARY, tiny_tokenizer

__all__ = [
    "TINY_MODELS",
    "ModelType",
    "TinyModel",
    "tiny_config",
    "tiny_weights",
    "write_texts",
    "write_tiny",
]

ModelType: TypeAlias = Literal["llama", "mistral", "qwen2", "qwen3"]
Floats: TypeAlias = NDArray[np.float32]

_ARCHITECTURES: Final[Mapping[ModelType, str]] = MappingProxyType(
    {
        "llama": "LlamaForCausalLM",
        "mistral": "MistralForCausalLM",
        "qwen2": "Qwen2ForCausalLM",
        "qwen3": "Qwen3ForCausalLM",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModel:
    """The shape of a tiny checkpoint."""

    model_type: ModelType = "llama"
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int | None = None
    """None: hidden / heads."""
    width: int = 96
    """Of the feed-forward block."""
    window: int = 512
    """The longest sequence."""
    sliding: int | None = None
    """How far attention sees (mistral); None: to the start."""
    tied: bool = False
    bias: bool = False
    """Biases on every projection (llama; qwen2 always has them on query, key and value)."""
    seed: int = 0

    @property
    def head_size(self) -> int:
        """The width of a head."""
        return self.hidden // self.heads if self.head_dim is None else self.head_dim


TINY_MODELS: Final[Mapping[str, TinyModel]] = MappingProxyType(
    {
        "llama": TinyModel(),
        "llama-tied": TinyModel(tied=True, heads=4, kv_heads=4, seed=1),
        "llama-bias": TinyModel(bias=True, kv_heads=1, seed=2),
        "llama-wide-heads": TinyModel(head_dim=32, seed=3),
        "mistral": TinyModel(model_type="mistral", seed=4),
        "mistral-sliding": TinyModel(model_type="mistral", sliding=24, seed=5),
        "qwen2": TinyModel(model_type="qwen2", tied=True, seed=6),
        "qwen3": TinyModel(model_type="qwen3", head_dim=32, seed=7),
    }
)
"""One of each kind."""


def write_tiny(folder: Path, model: TinyModel | None = None, *, dtype: StoredType = "F32", shards: int = 1) -> Path:
    """Write a checkpoint into a folder, which is made and returned."""
    model = TinyModel() if model is None else model
    write_texts(folder, tiny_config(model, dtype))
    _write_weights(folder, tiny_weights(model), dtype, shards)
    return folder


def write_texts(folder: Path, config: Mapping[str, Any]) -> None:
    """Everything of a checkpoint but its weights, with a config of any family whose vocabulary is the tiny one's."""
    folder.mkdir(parents=True, exist_ok=True)
    texts: dict[str, Mapping[str, Any]] = {"config.json": config, "generation_config.json": _generation_config()}
    texts["tokenizer_config.json"] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": CONTROL_TOKENS[0],
        "eos_token": CONTROL_TOKENS[2],
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    for name, value in texts.items():
        (folder / name).write_text(json.dumps(value, indent=2), encoding="utf-8")
    (folder / "tokenizer.json").write_text(tiny_tokenizer().to_str(), encoding="utf-8")


def tiny_config(model: TinyModel, dtype: StoredType = "F32") -> dict[str, Any]:
    """Its config.json."""
    config: dict[str, Any] = {
        "architectures": [_ARCHITECTURES[model.model_type]],
        "model_type": model.model_type,
        "vocab_size": TINY_VOCABULARY,
        "hidden_size": model.hidden,
        "intermediate_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_size,
        "max_position_embeddings": model.window,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": model.tied,
        "bos_token_id": _control_id(0),
        "eos_token_id": _control_id(2),
        "torch_dtype": "float32" if dtype == "F32" else "bfloat16",
    }
    match model.model_type:
        case "llama":
            config |= {"attention_bias": model.bias, "mlp_bias": model.bias}
        case "mistral":
            config["sliding_window"] = model.sliding
        case "qwen2":
            config["use_sliding_window"] = False
        case "qwen3":
            config |= {"attention_bias": False, "use_sliding_window": False}
    return config


def tiny_weights(model: TinyModel) -> dict[str, Floats]:
    """Its tensors by Hugging Face name, the same for the same model everywhere."""
    random = np.random.Generator(np.random.PCG64(model.seed))

    def normal(*shape: int, scale: float) -> Floats:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    def matrix(rows: int, columns: int, gain: float) -> Floats:
        return normal(rows, columns, scale=gain / np.sqrt(columns))

    def norm(size: int) -> Floats:
        return np.float32(1) + normal(size, scale=0.1)

    hidden, queries, keys = model.hidden, model.heads * model.head_size, model.kv_heads * model.head_size
    qkv_bias = model.bias or model.model_type == "qwen2"
    # A small table beside large layers: a tied head would else find the last token again, and repeat it for ever.
    weights = {"model.embed_tokens.weight": normal(TINY_VOCABULARY, hidden, scale=1.5 / np.sqrt(hidden))}
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}"
        projections = {
            "self_attn.q_proj": (queries, hidden, 1.5, qkv_bias),
            "self_attn.k_proj": (keys, hidden, 1.5, qkv_bias),
            "self_attn.v_proj": (keys, hidden, 1.0, qkv_bias),
            "self_attn.o_proj": (hidden, queries, 2.0, model.bias),
            "mlp.gate_proj": (model.width, hidden, 1.5, model.bias),
            "mlp.up_proj": (model.width, hidden, 1.0, model.bias),
            "mlp.down_proj": (hidden, model.width, 2.0, model.bias),
        }
        for name, (rows, columns, gain, bias) in projections.items():
            weights[f"{prefix}.{name}.weight"] = matrix(rows, columns, gain)
            if bias:
                weights[f"{prefix}.{name}.bias"] = normal(rows, scale=0.3)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}.{name}.weight"] = norm(hidden)
        if model.model_type == "qwen3":
            for name in ("q_norm", "k_norm"):
                weights[f"{prefix}.self_attn.{name}.weight"] = norm(model.head_size)
    weights["model.norm.weight"] = norm(hidden)
    if not model.tied:
        weights["lm_head.weight"] = matrix(TINY_VOCABULARY, hidden, 1.5)
    return weights


def _write_weights(folder: Path, weights: Mapping[str, Floats], dtype: StoredType, shards: int) -> None:
    if shards == 1:
        write_safetensors(folder / "model.safetensors", weights, dtype)
        return
    names = list(weights)
    where: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        mine = names[shard * len(names) // shards : (shard + 1) * len(names) // shards]
        write_safetensors(folder / file, {name: weights[name] for name in mine}, dtype)
        where |= dict.fromkeys(mine, file)
    index = {"metadata": {"total_size": sum(each.nbytes for each in weights.values())}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


# ---- configs -----------------------------------------------------------------------------------------------


def _generation_config() -> dict[str, Any]:
    ends = [_control_id(2), _control_id(0)]
    return {"bos_token_id": _control_id(0), "eos_token_id": ends, "do_sample": True, "temperature": 0.8, "top_p": 0.95}


def _control_id(at: int) -> int:
    return TINY_VOCABULARY - len(CONTROL_TOKENS) + at


if __name__ == "__main__":
    print(f"{write_tiny(Path(sys.argv[1]))} is written")
