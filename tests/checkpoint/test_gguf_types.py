"""Blocks expanded: the same values as the format's own library computes, as codes, scales and biases."""

from __future__ import annotations

import math

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.checkpoint.gguf_types import TYPES, GgufType, expand
from tensorfold.contracts.tensors import Affine, Dense

QUANTIZED = [type for type in TYPES.values() if type.blocks is not None]
HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""Where a block has its float16 scales."""
BITS = {"Q4_0": 4, "Q4_1": 4, "Q5_0": 5, "Q5_1": 5, "Q8_0": 8, "Q4_K": 4, "Q5_K": 5, "Q6_K": 6}
GROUPS = {"Q6_K": 16}


def random_blocks(type: GgufType, count: int, seed: int) -> NDArray[np.uint8]:
    """Blocks with every code and scale possible, and float16 scales of all finite sizes."""
    random = np.random.Generator(np.random.PCG64(seed))
    blocks = random.integers(0, 256, (count, type.size), dtype=np.uint8)
    for at in HALVES[type.name]:
        bits = random.integers(0, 0x7C00, count, dtype=np.uint16) | (
            random.integers(0, 2, count, dtype=np.uint16) << 15
        )
        blocks[:, at : at + 2] = bits.astype("<u2").view(np.uint8).reshape(count, 2)
    return blocks


@pytest.mark.parametrize("type", QUANTIZED, ids=lambda type: type.name)
@pytest.mark.parametrize("shape", [(3, 512), (2, 3, 256), (256,)])
def test_values_are_those_of_the_formats_own_library(type: GgufType, shape: tuple[int, ...]) -> None:
    blocks = random_blocks(type, math.prod(shape) // type.block, seed=len(shape))
    tensor = expand(type, blocks.reshape(-1), shape)
    expected = gguf.quants.dequantize(blocks.reshape(*shape[:-1], -1), gguf.GGMLQuantizationType[type.name])
    assert tensor.shape == shape == expected.shape
    assert np.array_equal(tensor.f32(), expected)


@pytest.mark.parametrize("type", QUANTIZED, ids=lambda type: type.name)
def test_a_matrix_stays_quantized_with_the_codes_that_it_was_stored_with(type: GgufType) -> None:
    tensor = expand(type, random_blocks(type, 4, seed=1).reshape(-1), (2, 2 * type.block))
    assert isinstance(tensor, Affine)
    assert tensor.bits == BITS[type.name]
    assert tensor.group == GROUPS.get(type.name, 32)
    assert tensor.scales.shape == tensor.biases.shape == (2, 2 * type.block // tensor.group)
    codes = tensor.unpacked()
    assert codes.dtype == np.uint8
    assert codes.max() < 2**tensor.bits
    assert len(np.unique(codes)) > 2**tensor.bits // 3


@pytest.mark.parametrize(("number", "layout"), [(0, "<f4"), (1, "<f2"), (30, "<u2"), (26, "<i4"), (27, "<i8")])
def test_plain_elements_are_a_view(number: int, layout: str) -> None:
    stored = np.arange(12).astype(layout)
    tensor = expand(TYPES[number], stored.view(np.uint8), (3, 4))
    assert isinstance(tensor, Dense)
    assert np.shares_memory(tensor.values, stored)
    assert np.array_equal(tensor.values, stored.reshape(3, 4))


@pytest.mark.parametrize("type", QUANTIZED, ids=lambda type: type.name)
@pytest.mark.parametrize("bits", [0x7C00, 0x7E00], ids=["infinity", "nan"])
def test_a_scale_that_is_not_finite_is_refused(type: GgufType, bits: int) -> None:
    blocks = random_blocks(type, 2, seed=3)
    at = HALVES[type.name][0]
    blocks[1, at : at + 2] = np.array([bits], "<u2").view(np.uint8)
    with pytest.raises(ValueError, match="not finite"):
        expand(type, blocks.reshape(-1), (2, type.block))


def test_block_sizes_are_those_of_the_formats_own_library() -> None:
    for number, type in TYPES.items():
        known = gguf.GGMLQuantizationType(number)
        assert (type.name, (type.block, type.size)) == (known.name, gguf.GGML_QUANT_SIZES[known])
