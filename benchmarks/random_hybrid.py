"""A GGUF file of a hybrid model in the shape of Qwen3.5 0.8B, with random weights and another file's vocabulary.

    python benchmarks/random_hybrid.py SOURCE.gguf TARGET.gguf [--experts 32]

For speed alone: it says nothing that makes sense. Matrices are Q4_0, tables Q8_0. With experts, each layer's feed-forward
block is a mixture of so many, of which a token chooses eight, beside one that all share.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import gguf
import numpy as np
from numpy.typing import NDArray

from tensorfold.testing.declared_checkpoint import declared_arrays
from tensorfold.testing.gguf_hybrids import convert_qwen
from tensorfold_model_qwen.family import QwenFamily

LAYERS: Final = 24
PERIOD: Final = 4
"""Every fourth layer attends to all positions."""
CONFIG: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "model_type": "qwen3_5_text",
        "hidden_size": 1024,
        "intermediate_size": 3584,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "layer_types": [*["linear_attention"] * (PERIOD - 1), "full_attention"] * (LAYERS // PERIOD),
        "rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10]},
        "max_position_embeddings": 8192,
        "mtp_num_hidden_layers": 0,
        "eos_token_id": 1,
    }
)
MIXTURE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "model_type": "qwen3_5_moe_text",
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 256,
        "shared_expert_intermediate_size": 256,
    }
)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="A hybrid model with random weights, for benchmarks.")
    parser.add_argument("source", type=Path, metavar="SOURCE.gguf")
    parser.add_argument("target", metavar="TARGET.gguf")
    parser.add_argument("--experts", type=int, default=0, help="of each layer; 0: its feed-forward block is dense")
    asked = parser.parse_args()
    fields = gguf.GGUFReader(asked.source).fields
    config = {**CONFIG, "vocab_size": len(fields["tokenizer.ggml.tokens"].data)}
    architecture = "qwen35"
    if asked.experts:
        config |= {**MIXTURE, "num_experts": asked.experts}
        architecture = "qwen35moe"
    metadata, tensors = convert_qwen(config, declared_arrays(QwenFamily(), config))
    metadata |= {
        "full_attention_interval": PERIOD,
        "rope.dimension_count": 64,
        "rope.dimension_sections": np.array([11, 11, 10, 0], np.int32),
    }
    writer = gguf.GGUFWriter(asked.target, architecture)
    for each in fields.values():
        if each.name.startswith("tokenizer."):
            _add(writer, each.name, each.contents(), each.types[0])
    for key, value in metadata.items():
        _add(writer, f"{architecture}.{key}", value, None)
    for name, values in tensors.items():
        _add_tensor(writer, name, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add(writer: gguf.GGUFWriter, key: str, value: Any, kind: gguf.GGUFValueType | None) -> None:
    match value:
        case np.ndarray():
            writer.add_array(key, value.tolist())
        case list():
            writer.add_array(key, value)
        case bool():
            writer.add_bool(key, value)
        case int() if kind is None:
            writer.add_uint32(key, value)
        case float() if kind is None:
            writer.add_float32(key, value)
        case _:
            writer.add_key_value(key, value, kind)


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: NDArray[np.float32]) -> None:
    if values.ndim == 1 or "conv1d" in name or "norm" in name or values.shape[-1] % 32:
        writer.add_tensor(name, values)
        return
    kinds = gguf.GGMLQuantizationType
    kind = kinds.Q8_0 if name in ("token_embd.weight", "output.weight") else kinds.Q4_0
    writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)


if __name__ == "__main__":
    main()
