"""GGUF files for comparisons: the same model in another format, and what its window takes."""

from __future__ import annotations

import json
import subprocess
import sys
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


def state_bytes(source: Path, positions: int, sequences: int) -> int:
    """What our states of so many positions and sequences take, twice the fixed part, for kept prompts have one as well."""
    command = [sys.executable, "-m", "tensorfold", "info", str(source), "--json"]
    told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return int(told["bytes_per_token"] * positions + 2 * sequences * told["bytes_per_sequence"])
