"""Quantized checkpoints of every family reply as their dequantized weights do, token for token."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.checkpoint.safetensors import SafetensorsFile
from tensorfold.compute.loading import check_weights
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.errors import WeightsMismatch
from tensorfold.testing.array_tensors import ArrayTensors
from tensorfold.testing.declared_checkpoint import declared_arrays
from tensorfold.testing.family_configs import FAMILY_CONFIGS
from tensorfold.testing.quantized import Quantized, float4, float8, integers, mlx_affine, word_integers
from tensorfold.testing.random_tensors import ReplacedTensors
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.safetensors_writer import Stored, write_stored
from tensorfold.testing.tiny import write_texts
from tensorfold.testing.ways import Loaded, serial_reply
from tensorfold_model_flash_next.family import FlashNextFamily
from tensorfold_model_gemma.family import GemmaFamily
from tensorfold_model_glm.family import GlmFamily
from tensorfold_model_llama.family import LlamaFamily
from tensorfold_model_nemotron.family import NemotronFamily
from tensorfold_model_qwen.family import QwenFamily

FAMILIES: dict[str, ModelFamily] = {
    "llama": LlamaFamily(),
    "qwen3": QwenFamily(),
    "qwen4": FlashNextFamily(),
    "glm": GlmFamily(),
    "glm5": GlmFamily(),
    "nemotron": NemotronFamily(),
    "gemma3": GemmaFamily(),
    "gemma4": GemmaFamily(),
}
TOKENS = (3, 4, 5, 9, 20)

Make = Callable[[str, NDArray[np.float32]], Quantized]
"""From a module and its matrix."""


def fp8(module: str, matrix: NDArray[np.float32], **settings: Any) -> Quantized:
    return float8(f"{module}.weight", matrix, **settings)


def compressed(format: str) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": {}}}
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": format, "config_groups": groups}}


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 32]}
FORMATS: dict[str, tuple[dict[str, Any], Make]] = {
    "MLX 4 bits": ({"quantization": {"bits": 4, "group_size": 32}}, partial(mlx_affine, bits=4, group=32)),
    "MLX 8 bits": ({"quantization": {"bits": 8, "group_size": 32}}, partial(mlx_affine, bits=8, group=32)),
    "MLX 6 bits": ({"quantization": {"bits": 6, "group_size": 16}}, partial(mlx_affine, bits=6, group=16)),
    "FP8": ({"quantization_config": FP8}, partial(fp8, block=(16, 32))),
    "NVFP4": (
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
        partial(float4, packed=False),
    ),
    "NVFP4 of compressed-tensors": (compressed("nvfp4-pack-quantized"), partial(float4, packed=True)),
    "4-bit integers": (compressed("pack-quantized"), partial(word_integers, bits=4, group=32, symmetric=False)),
    "8-bit integers": (compressed("int-quantized"), integers),
}
CASES = [
    *(("llama", format) for format in FORMATS),
    *((kind, f"MLX {bits} bits") for kind in FAMILY_CONFIGS if kind != "llama" for bits in (4, 8)),
    ("qwen3_5", "FP8"),
    ("glm_moe_dsa", "FP8"),
    ("nemotron_h", "NVFP4"),
]
"""Every format, MLX's of every kind of model with 4 and 8 bits, and the formats that vendors ship."""


def written(folder: Path, kind: str, format: str) -> tuple[Mapping[str, NDArray[Any]], int]:
    """The dequantized tensors by the names in the folder, and how many matrices are quantized."""
    config, (scheme, make) = FAMILY_CONFIGS[kind], FORMATS[format]
    arrays = declared_arrays(FAMILIES[re.split(r"[_,]", kind)[0]], config)
    mlx = "quantization" in scheme
    if mlx and kind == "qwen3_5_moe":
        arrays = stacked(arrays)
    stored: dict[str, Stored] = {}
    values: dict[str, NDArray[Any]] = {}
    quantized = 0
    for name, each in arrays.items():
        if is_quantized(name, each, mlx):
            made = make(name.removesuffix(".weight"), each)
            stored |= made.stored
            values[name] = made.values
            quantized += 1
        else:
            stored[name] = Stored("I64" if each.dtype.kind == "i" else "F32", each)
            values[name] = each
    write_texts(folder, {**config, **scheme})
    write_stored(folder / "model.safetensors", stored)
    return values, quantized


def is_quantized(name: str, values: NDArray[Any], mlx: bool) -> bool:
    """Matrices; by vendors neither tables nor routers, and the small parts of a delta net by nobody."""
    if not name.endswith(".weight") or values.shape[-1] % 32 or "conv" in name or "norm" in name or values.ndim < 2:
        return False
    kept = ("in_proj_a", "in_proj_b", *(() if mlx else ("embed", "lm_head", "gate", "ngram")))
    return not any(part in name.split(".")[-2] for part in kept) or "gate_proj" in name


def stacked(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The experts as MLX's converter lays them."""
    pattern = re.compile(r"(.*\.mlp)\.experts\.\d+\.(\w+)\.weight")
    groups: dict[str, list[NDArray[Any]]] = {}
    rest: dict[str, NDArray[Any]] = {}
    for name, values in arrays.items():
        if (match := pattern.fullmatch(name)) is None:
            rest[name] = values
        else:
            groups.setdefault(f"{match[1]}.switch_mlp.{match[2]}.weight", []).append(values)
    return rest | {name: np.stack(each) for name, each in groups.items()}


@pytest.mark.parametrize(("kind", "format"), CASES, ids=[f"{kind}, {format}" for kind, format in CASES])
def test_a_quantized_checkpoint_replies_as_its_dequantized_weights_do(
    tmp_path: Path, kind: str, format: str, each_session: Session[Any]
) -> None:
    """By codes or by what they are expanded to, every backend gives the greedy tokens that the reference gives."""
    values, quantized = written(tmp_path, kind, format)
    opened = open_checkpoint(tmp_path, FAMILIES.values())
    config = opened.checkpoint.config
    forms = [info.form for info in check_weights(opened.family, config, opened.checkpoint)]
    assert len(forms) - forms.count("dense") == quantized > 10
    plain = ReplacedTensors(
        ArrayTensors({name: each for name, each in values.items() if each.dtype.kind == "f"} | _places(values)),
        {name: each for name, each in values.items() if each.dtype.kind == "i"},
    )
    reply = serial_reply(Loaded(opened.family, config, opened.checkpoint, each_session), TOKENS, 16)
    reference = ReferenceBackend().open(BackendSettings())
    expected = serial_reply(Loaded(opened.family, config, plain, reference), TOKENS, 16)
    assert reply.tokens == expected.tokens and len(set(reply.tokens)) > 3
    exact = declared_arrays(opened.family, config.values)
    changed = [name for name in exact if name in values and not np.array_equal(exact[name], values[name])]
    assert changed, "the codes are of fewer bits than the weights"


def _places(values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """Names for the integers, whose values another source gives."""
    return {name: np.zeros(each.shape, np.float32) for name, each in values.items() if each.dtype.kind == "i"}


def test_whatever_does_not_fit_a_quantized_checkpoint_is_told_at_once(tmp_path: Path) -> None:
    """Parts that do not belong together beside what is missing, misshapen, unread or foreign; once each."""
    written(tmp_path, "llama", "MLX 4 bits")
    stored = stored_tensors(tmp_path)
    layer = "model.layers.0"
    del stored[f"{layer}.mlp.up_proj.scales"], stored[f"{layer}.input_layernorm.weight"]
    biases = stored[f"{layer}.mlp.down_proj.biases"]
    stored[f"{layer}.mlp.down_proj.biases"] = Stored("F32", np.zeros((3, *biases.values.shape[1:]), np.float32))
    stored["model.norm.weight"] = Stored("F32", np.ones(5, np.float32))
    stored[f"{layer}.post_attention_layernorm.weight"] = Stored("F64", np.ones(64))
    stored[f"{layer}.mlp.odd.weight"] = Stored("F32", np.ones(5, np.float32))
    write_stored(tmp_path / "model.safetensors", stored)
    opened = open_checkpoint(tmp_path, FAMILIES.values())
    with pytest.raises(WeightsMismatch) as caught:
        check_weights(opened.family, opened.checkpoint.config, opened.checkpoint)
    lines = str(caught.value).splitlines()[1:]
    for told in (
        f"  {layer}.mlp.up_proj.weight has no {layer}.mlp.up_proj.scales",
        f"  {layer}.input_layernorm.weight is missing",
        f"  {layer}.mlp.down_proj.weight has scales",
        "  model.norm.weight is [5], and must be [64]",
        f"  {layer}.post_attention_layernorm.weight has type F64, and only",
        f"  {layer}.mlp.odd.weight is not run",
    ):
        assert sum(line.startswith(told) for line in lines) == 1, (told, lines)
    assert len(lines) == 6


def test_a_quantized_part_that_nobody_runs_bars_nothing(tmp_path: Path) -> None:
    """Of a vision tower, say, in shapes that are not read."""
    kind = "gemma3"
    written(tmp_path, kind, "FP8")
    stored = {
        **stored_tensors(tmp_path),
        "vision_tower.odd.weight": Stored("F8_E4M3", np.zeros((2, 3, 4), np.uint8)),
        "vision_tower.odd.weight_scale_inv": Stored("F32", np.ones((7, 7), np.float32)),
    }
    write_stored(tmp_path / "model.safetensors", stored)
    opened = open_checkpoint(tmp_path, FAMILIES.values())
    read = check_weights(opened.family, opened.checkpoint.config, opened.checkpoint)
    assert read and not any("vision" in info.name for info in read)


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """The tensors of a folder as they are stored."""
    file = SafetensorsFile(folder / "model.safetensors")
    return {name: Stored(file.info(name).kind, file.raw(name).copy()) for name in file.names()}
