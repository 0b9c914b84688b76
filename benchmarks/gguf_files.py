"""GGUF files for comparisons: the same model in another format, and what its window takes."""

from __future__ import annotations

from pathlib import Path

import gguf

__all__ = ["requantized", "state_bytes"]


def requantized(source: Path, target: Path) -> None:
    """The same model with its 4-bit matrices in Q4_0."""
    reader = gguf.GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(target, architecture)
    for each in reader.fields.values():
        if each.name.startswith("GGUF.") or each.name == "general.architecture":
            continue
        if each.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(each.name, each.contents())
        else:
            value = 2 if each.name == "general.file_type" else each.contents()
            writer.add_key_value(each.name, value, each.types[0])
    four = {gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.Q4_K}
    for tensor in reader.tensors:
        if tensor.tensor_type in four:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            packed = gguf.quantize(values, gguf.GGMLQuantizationType.Q4_0)
            writer.add_tensor(tensor.name, packed, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def state_bytes(source: Path, positions: int) -> int:
    """Keys and values of so many positions in half precision, which is what llama.cpp keeps for its window."""
    fields = gguf.GGUFReader(source).fields
    architecture = str(fields["general.architecture"].contents())

    def number(key: str) -> int:
        return int(fields[f"{architecture}.{key}"].contents())

    width = number("embedding_length") // number("attention.head_count")
    return 2 * 2 * width * number("attention.head_count_kv") * number("block_count") * positions
