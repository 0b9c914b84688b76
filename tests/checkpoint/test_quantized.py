"""Quantized safetensors are read as the values that their codes and scales stand for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.checkpoint.quantized.floats import E4M3
from tensorfold.contracts.tensors import Affine, Dense
from tensorfold.errors import CheckpointError, CheckpointUnsupported
from tensorfold.testing.quantized import Quantized, float4, float8, integers, mlx_affine, word_integers
from tensorfold.testing.safetensors_writer import Stored, write_stored
from tensorfold.testing.tiny import TinyModel, tiny_config, write_texts

ROWS, COLUMNS = 40, 192
MODULE = "model.layers.0.mlp.up_proj"
NAME = f"{MODULE}.weight"


def matrix(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


PLAIN = matrix(ROWS, COLUMNS)


def compressed(format: str, **weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": format, "config_groups": groups}}


def opened(tmp_path: Path, config: Mapping[str, Any], stored: Mapping[str, Stored]) -> FolderCheckpoint:
    """A folder with these tensors and nothing else."""
    write_texts(tmp_path / "model", {**tiny_config(TinyModel()), **config})
    write_stored(tmp_path / "model" / "model.safetensors", stored)
    return FolderCheckpoint(tmp_path / "model")


FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
CASES: dict[str, tuple[dict[str, Any], Callable[[], Quantized]]] = {
    **{
        f"MLX {bits} bits, groups of {group}": (
            {"quantization": {"bits": bits, "group_size": group, "mode": "affine"}},
            partial(mlx_affine, MODULE, PLAIN, bits=bits, group=group),
        )
        for bits, group in ((2, 64), (3, 32), (4, 64), (5, 32), (6, 16), (8, 64))
    },
    "FP8 in blocks": (
        {"quantization_config": {**FP8, "weight_block_size": [16, 128]}},
        lambda: float8(NAME, PLAIN, block=(16, 128)),
    ),
    "FP8 in blocks as tall as rows": (
        {"quantization_config": {**FP8, "weight_block_size": [1, 192]}},
        lambda: float8(NAME, PLAIN, block=(1, 192)),
    ),
    "FP8 with one scale": ({"quantization_config": FP8}, lambda: float8(NAME, PLAIN, block=None)),
    "FP8 of Model Optimizer": (
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
        lambda: float8(NAME, PLAIN, block=None, inverse=False),
    ),
    "FP8 of compressed-tensors, a scale a row": (
        compressed("float-quantized", num_bits=8, type="float", strategy="channel"),
        lambda: float8(NAME, PLAIN, block=(1, COLUMNS), inverse=False),
    ),
    "NVFP4 of compressed-tensors": (
        compressed("nvfp4-pack-quantized", num_bits=4, type="float", group_size=16),
        lambda: float4(MODULE, PLAIN, packed=True),
    ),
    "NVFP4 of Model Optimizer": (
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}},
        lambda: float4(MODULE, PLAIN, packed=False),
    ),
    **{
        f"packed integers, {bits} bits, {group or COLUMNS} columns, {'' if symmetric else 'a'}symmetric": (
            compressed("pack-quantized", num_bits=bits, type="int", symmetric=symmetric),
            partial(word_integers, MODULE, PLAIN, bits=bits, group=group, symmetric=symmetric),
        )
        for bits in (3, 4, 8)
        for group, symmetric in ((64, True), (96, False), (None, True))
    },
    "signed bytes": (compressed("int-quantized", num_bits=8, type="int"), lambda: integers(MODULE, PLAIN)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_quantized_matrix_is_one_tensor_with_the_values_of_its_codes(
    tmp_path: Path, case: tuple[dict[str, Any], Callable[[], Quantized]]
) -> None:
    config, make = case
    quantized = make()
    beside = {"model.norm.weight": Stored("F32", np.ones(4, np.float32)), f"{MODULE}.input_scale": _one()}
    checkpoint = opened(tmp_path, config, {**quantized.stored, **beside})
    assert set(checkpoint.names()) == {NAME, "model.norm.weight"}
    info = checkpoint.info(NAME)
    assert info.shape == (ROWS, COLUMNS) and info.form in ("affine", "expanded")
    stored = sum(each.values.nbytes for name, each in quantized.stored.items() if not name.endswith("_shape"))
    assert info.stored_bytes == stored
    read = checkpoint.read(NAME)
    assert read.shape == (ROWS, COLUMNS)
    assert isinstance(read, Affine if info.form == "affine" else Dense)
    assert np.allclose(read.f32(), quantized.values, rtol=2e-7, atol=1e-7)
    # The codes stand for the matrix that was quantized, and not for something else that is read back alike.
    error = np.abs(read.f32() - PLAIN).mean() / np.abs(PLAIN).mean()
    assert error < 0.5
    assert np.array_equal(checkpoint.read("model.norm.weight").f32(), np.ones(4))


def _one() -> Stored:
    return Stored("F32", np.ones((), np.float32))


@pytest.mark.torch
def test_eight_bit_floats_have_the_values_that_torch_gives_them() -> None:
    """All 256 of them."""
    import torch

    codes = torch.arange(256, dtype=torch.uint8)
    assert np.array_equal(codes.view(torch.float8_e4m3fn).float().numpy(), E4M3, equal_nan=True)


def test_codes_of_four_and_eight_bits_are_views_of_the_file(tmp_path: Path) -> None:
    for bits in (4, 8):
        quantized = mlx_affine(MODULE, PLAIN, bits=bits, group=64)
        config = {"quantization": {"bits": bits, "group_size": 64}}
        read = opened(tmp_path / str(bits), config, quantized.stored).read(NAME)
        assert isinstance(read, Affine) and not read.codes.flags.owndata and not read.codes.flags.writeable


def test_modules_may_have_bits_and_groups_of_their_own(tmp_path: Path) -> None:
    """MLX's mixed recipes name them in the config, some as not quantized at all."""
    other, plain = "model.layers.0.mlp.down_proj", "model.layers.0.mlp.gate"
    stored = {
        **mlx_affine(MODULE, PLAIN, bits=4, group=64).stored,
        **mlx_affine(other, PLAIN, bits=6, group=32).stored,
        f"{plain}.weight": Stored("F32", PLAIN),
    }
    rules = {"bits": 4, "group_size": 64, other: {"bits": 6, "group_size": 32}, plain: False}
    checkpoint = opened(tmp_path, {"quantization": rules, "quantization_config": rules}, stored)
    read = [checkpoint.read(f"{module}.weight") for module in (MODULE, other, plain)]
    assert [(each.bits, each.group) if isinstance(each, Affine) else None for each in read] == [(4, 64), (6, 32), None]


def test_stacks_of_experts_are_read_as_stacks(tmp_path: Path) -> None:
    stack = matrix(3, 24, 64)
    quantized = mlx_affine("model.layers.0.mlp.switch_mlp.up_proj", stack, bits=4, group=32)
    read = opened(tmp_path, {"quantization": {"bits": 4, "group_size": 32}}, quantized.stored)
    assert np.array_equal(read.read("model.layers.0.mlp.switch_mlp.up_proj.weight").f32(), quantized.values)
    each = [float8("x", one, block=(16, 32)) for one in stack]
    name = "model.layers.0.mlp.experts.up_proj"
    together = {
        name: Stored("F8_E4M3", np.stack([one.stored["x"].values for one in each])),
        f"{name}_scale_inv": Stored("F32", np.stack([one.stored["x_scale_inv"].values for one in each])),
    }
    config = {"quantization_config": {**FP8, "weight_block_size": [16, 32]}}
    read = opened(tmp_path / "fp8", config, together)
    assert np.array_equal(read.read(name).f32(), np.stack([one.values for one in each]))


# ---- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "awq"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "bitsandbytes"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {**FP8, "fmt": "e5m2"}}, "fmt"),
        ({"quantization_config": {**FP8, "weight_block_size": 128}}, "weight_block_size"),
        ({"quantization": {"bits": 4, "group_size": 32, "mode": "mxfp4"}}, "mode"),
        ({"quantization": {"bits": 7, "group_size": 64}}, "bits is 7"),
        ({"quantization": {"bits": 4, "group_size": 64, MODULE: {"bits": 8, "mode": "nvfp4"}}}, f"{MODULE}.mode"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}}, "W4A8_AWQ"),
        (compressed("marlin-24"), "marlin-24"),
        ({"text_config": {"quantization_config": {"quant_method": "gptq"}}}, "gptq"),
    ],
)
def test_a_quantization_that_is_not_read_is_refused_by_name_before_any_weight(
    tmp_path: Path, config: dict[str, Any], named: str
) -> None:
    """The folder has no weight file at all, which is told only afterwards."""
    write_texts(tmp_path, {**tiny_config(TinyModel()), **config})
    with pytest.raises(CheckpointUnsupported, match=named):
        FolderCheckpoint(tmp_path)


def test_sparse_and_rotated_matrices_are_refused_by_name(tmp_path: Path) -> None:
    for key, value in {
        "sparsity_config": {"format": "sparse-24"},
        "transform_config": {"config_groups": {"u": {}}},
    }.items():
        config = compressed("pack-quantized")
        config["quantization_config"][key] = value
        write_texts(tmp_path, {**tiny_config(TinyModel()), **config})
        with pytest.raises(CheckpointUnsupported, match=key):
            FolderCheckpoint(tmp_path)


def integers_of(module: str, **others: Stored) -> dict[str, Stored]:
    """Packed integers with zero points, some of whose parts are others."""
    good = word_integers(module, PLAIN, bits=4, group=64, symmetric=False).stored
    return {**good, **{f"{module}.weight_{part}": each for part, each in others.items()}}


def test_codes_and_scales_that_do_not_belong_together_are_one_tensor_with_a_problem(tmp_path: Path) -> None:
    """A missing scale, one too many, zero points of other bits, codes in an order that is not read, and one twice."""
    stored = {
        **integers_of("a"),
        **integers_of("b", scale=Stored("F32", np.ones((ROWS, 5), np.float32))),
        **integers_of("c", zero_point=Stored("I32", np.ones((ROWS, 3), np.int32))),
        **integers_of("d", g_idx=Stored("I32", np.zeros(COLUMNS, np.int32))),
        **integers_of("e", scale=Stored("F64", np.ones((ROWS, 3), np.float64))),
        **integers_of("f"),
        "f.weight": Stored("F32", PLAIN),
        **integers_of("good"),
    }
    del stored["a.weight_scale"]
    checkpoint = opened(tmp_path, compressed("pack-quantized"), stored)
    assert sorted(checkpoint.names()) == [f"{module}.weight" for module in ("a", "b", "c", "d", "e", "f", "good")]
    for module, told in {
        "a": "has no a.weight_scale",
        "b": "with 200 scales",
        "c": "has c.weight_zero_point [40, 3], which must be words of 4 bits [5, 3]",
        "d": "d.weight_g_idx",
        "e": "has e.weight_scale of type F64",
        "f": "is there twice",
    }.items():
        assert told in checkpoint.info(f"{module}.weight").problem
        with pytest.raises(CheckpointUnsupported, match=rf"^{module}\.weight "):
            checkpoint.read(f"{module}.weight")
    assert not checkpoint.info("good.weight").problem and checkpoint.read("good.weight").shape == PLAIN.shape


@pytest.mark.parametrize("part", ["weight_scale_2", "weight_scale"])
def test_four_bit_floats_have_one_scale_of_the_whole_and_one_for_sixteen(tmp_path: Path, part: str) -> None:
    """One too many would be left over silently, and without one the bytes are no matrix."""
    config = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
    stored = dict(float4(MODULE, PLAIN, packed=False).stored)
    scales = stored.pop(f"{MODULE}.{part}")
    assert opened(tmp_path / "without", config, stored).info(NAME).problem == f"has no {MODULE}.{part}"
    stored[f"{MODULE}.{part}"] = Stored(scales.dtype, np.stack([scales.values] * 2))
    checkpoint = opened(tmp_path / "twice", config, stored)
    assert set(checkpoint.names()) == {NAME} and checkpoint.info(NAME).problem


@pytest.mark.parametrize("format", ["pack-quantized", "int-quantized"])
def test_integers_that_the_config_gives_zero_points_have_them(tmp_path: Path, format: str) -> None:
    """Without them they would silently be read as others."""
    words = word_integers(MODULE, PLAIN, bits=4, group=64, symmetric=True)
    stored = words.stored if format == "pack-quantized" else integers(MODULE, PLAIN).stored
    checkpoint = opened(tmp_path, compressed(format, symmetric=False), stored)
    assert checkpoint.info(NAME).problem == f"has no {NAME}_zero_point"


def test_zero_points_of_a_row_number_that_fills_words_of_an_odd_count_are_read(tmp_path: Path) -> None:
    """Five codes of six bits fill a word, and there are five rows."""
    odd = word_integers(MODULE, PLAIN[:5], bits=6, group=64, symmetric=False)
    read = opened(tmp_path, compressed("pack-quantized"), odd.stored).read(NAME)
    assert np.array_equal(read.f32(), odd.values)


@pytest.mark.parametrize("drop", ["scales", "biases"])
def test_affine_codes_without_their_scales_are_refused(tmp_path: Path, drop: str) -> None:
    stored = dict(mlx_affine(MODULE, PLAIN, bits=4, group=64).stored)
    del stored[f"{MODULE}.{drop}"]
    checkpoint = opened(tmp_path, {"quantization": {"bits": 4, "group_size": 64}}, stored)
    with pytest.raises(CheckpointError, match=MODULE):
        checkpoint.read(NAME)


def test_a_checkpoint_of_other_bits_than_its_config_says_is_refused(tmp_path: Path) -> None:
    stored = mlx_affine(MODULE, PLAIN, bits=8, group=64).stored
    checkpoint = opened(tmp_path, {"quantization": {"bits": 4, "group_size": 64}}, stored)
    with pytest.raises(CheckpointUnsupported, match=rf"{NAME}.*not 4 bits in groups of 64"):
        checkpoint.read(NAME)
