"""The tensor types of GGUF files, and their blocks expanded exactly into `Dense` or `Affine`.

Block layouts are those of ggml (https://github.com/ggml-org/ggml, `ggml-common.h`): a row is a sequence of blocks,
each with its own scales. Every type here is a code times a scale plus a bias, with at most 24 significant bits in each
product, so float32 holds what ggml computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.checkpoint.unpacking import Unpacking
from tensorfold.contracts.tensors import Dense, DenseType, Tensor

__all__ = ["TYPES", "GgufType", "expand"]

Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]

_NIBBLE: Final = np.uint8(0x0F)
_FOUR: Final = np.uint8(4)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """What is in `[rows, blocks, size]` blocks of integer codes."""

    bits: int
    codes: Callable[[Bytes], Bytes]
    """To `[rows, blocks, codes of a block]` with more than four bits, else two codes a byte."""
    real: Callable[[Bytes], tuple[Floats, Floats]]
    """To scales and biases, each `[rows, blocks, groups of a block]`."""


@dataclass(frozen=True, slots=True)
class GgufType:
    """How a tensor's elements are stored."""

    name: str
    block: int
    """Elements in a block."""
    size: int
    """Bytes of a block."""
    dense: tuple[DenseType, str] | None = None
    """The element type here and in numpy, when elements are stored one by one."""
    blocks: _Blocks | None = None
    """How integer codes are stored; None with `dense` None: the type is not read."""

    @property
    def is_read(self) -> bool:
        """Whether `expand` takes this type."""
        return self.dense is not None or self.blocks is not None

    @property
    def problem(self) -> str:
        """Why a tensor of this type cannot be read, behind its name; empty: it can."""
        read = ", ".join(each.name for each in TYPES.values() if each.is_read)
        return "" if self.is_read else f"has type {self.name}, and only {read} are read"


def expand(type: GgufType, data: Bytes, shape: tuple[int, ...]) -> Tensor:
    """The tensor of a shape whose stored bytes are `data`; a dense one is a view of them.

    Raises:
        ValueError: a scale is not finite, so that the bytes cannot be a tensor of this type.
    """
    if type.dense is not None:
        kind, layout = type.dense
        return Dense(data.view(layout).reshape(shape), kind)
    if type.blocks is None:
        raise TypeError(f"{type.name} is not read")
    leading, columns = shape[:-1], shape[-1]
    stored = data.reshape(-1, columns // type.block, type.size)
    codes = type.blocks.codes
    scales, biases = type.blocks.real(stored)
    affine = Unpacking(
        type.blocks.bits,
        type.block // scales.shape[-1],
        scales.reshape(*leading, -1),
        biases.reshape(*leading, -1),
        lambda first, last: codes(stored[first:last]).reshape(last - first, -1),
    )
    # A quantized vector has no rows to be a matrix of.
    return affine if leading else Dense(affine.f32(), "f32")


# ---- the pieces that blocks are made of -------------------------------------------------------------------


def _half(blocks: Bytes, offset: int) -> Floats:
    """The float16 at this offset of each block: `[rows, blocks, 1]`."""
    bits = np.ascontiguousarray(blocks[..., offset : offset + 2]).view("<u2")
    if ((bits & 0x7C00) == 0x7C00).any():
        raise ValueError("a scale is not finite")
    return bits.view("<f2").astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """Repack codes two a byte: stored are all low nibbles first, wanted are neighbours in one byte.

    `[..., n]`, whose low nibbles are elements 0 to n - 1 and whose high ones are n to 2 n - 1, to `[..., n]`.
    """
    pairs = np.ascontiguousarray(packed).view("<u2")
    half = pairs.shape[-1]
    codes = np.empty(packed.shape, np.uint8)
    codes[..., :half] = (pairs & 0x0F) | ((pairs >> 4) & 0xF0)
    codes[..., half:] = ((pairs >> 4) & 0x0F) | ((pairs >> 8) & 0xF0)
    return codes


def _split(packed: Bytes) -> Bytes:
    """`[..., n]` bytes to `[..., 2 n]` codes: the low nibbles, then the high ones."""
    return np.concatenate((packed & _NIBBLE, packed >> _FOUR), axis=-1)


def _bits(packed: Bytes) -> Bytes:
    """`[..., n]` bytes to `[..., 8 n]` bits, lowest first."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


# ---- blocks of 32 ------------------------------------------------------------------------------------------


def _centred(blocks: Bytes, middle: int) -> tuple[Floats, Floats]:
    """A scale, and the code that stands for 0."""
    scales = _half(blocks, 0)
    return scales, scales * np.float32(-middle)


def _biased(blocks: Bytes) -> tuple[Floats, Floats]:
    """A scale and a bias."""
    return _half(blocks, 0), _half(blocks, 2)


def _fives(blocks: Bytes, at: int) -> Bytes:
    """Codes of five bits: four bytes of top bits from `at` on, then nibbles."""
    return _split(blocks[..., at + 4 :]) | (_bits(blocks[..., at : at + 4]) << _FOUR)


_Q4_0 = _Blocks(4, lambda blocks: _nibbles(blocks[..., 2:]), lambda blocks: _centred(blocks, 8))
_Q4_1 = _Blocks(4, lambda blocks: _nibbles(blocks[..., 4:]), _biased)
_Q5_0 = _Blocks(5, lambda blocks: _fives(blocks, 2), lambda blocks: _centred(blocks, 16))
_Q5_1 = _Blocks(5, lambda blocks: _fives(blocks, 4), _biased)
# A signed code plus 128 is the same byte with its top bit flipped.
_Q8_0 = _Blocks(8, lambda blocks: blocks[..., 2:] ^ np.uint8(0x80), lambda blocks: _centred(blocks, 128))


# ---- blocks of 256 -----------------------------------------------------------------------------------------


def _scales_and_minima(blocks: Bytes) -> tuple[Floats, Floats]:
    """Scale and bias of the eight groups of a Q4_K or Q5_K block: `d * scale` and `-dmin * min`, six bits each.

    Twelve bytes hold them: the low six bits of 0 to 3 are scales 0 to 3, of 4 to 7 minima 0 to 3; 8 to 11 hold the
    low nibbles of scales (low) and minima (high) 4 to 7, whose top two bits are those of bytes 0 to 3 and 4 to 7.
    """
    first, second, rest = (blocks[..., at : at + 4] for at in (4, 8, 12))
    scales = np.concatenate((first & 0x3F, (rest & 0x0F) | ((first >> 2) & 0x30)), axis=-1)
    minima = np.concatenate((second & 0x3F, (rest >> 4) | ((second >> 2) & 0x30)), axis=-1)
    return _half(blocks, 0) * scales, -(_half(blocks, 2) * minima)


def _q4_k_codes(blocks: Bytes) -> Bytes:
    # Each run of 32 bytes holds two groups: one in the low nibbles, the next in the high ones.
    runs = blocks[..., 16:].reshape(*blocks.shape[:-1], 4, 32)
    return _nibbles(runs).reshape(*blocks.shape[:-1], 128)


def _q5_k_codes(blocks: Bytes) -> Bytes:
    low = _split(blocks[..., 48:].reshape(*blocks.shape[:-1], 4, 32)).reshape(*blocks.shape[:-1], 8, 32)
    # Bit g of the 32 bytes is the fifth bit of group g.
    high = (blocks[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return (low | (high << _FOUR)).reshape(*blocks.shape[:-1], 256)


def _q6_k_codes(blocks: Bytes) -> Bytes:
    leading = blocks.shape[:-1]
    # Two halves of 128: 64 bytes hold the low nibbles of four groups of 32 (low, low, high, high), 32 bytes their
    # upper two bits.
    low = _split(blocks[..., :128].reshape(*leading, 2, 64)).reshape(*leading, 2, 4, 32)
    high = blocks[..., 128:192].reshape(*leading, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    return (low | ((high & np.uint8(3)) << _FOUR)).reshape(*leading, 256)


def _q6_k_real(blocks: Bytes) -> tuple[Floats, Floats]:
    groups = np.ascontiguousarray(blocks[..., 192:208]).view(np.int8).astype(np.float32)
    scales = _half(blocks, 208) * groups
    return scales, scales * np.float32(-32)


_Q4_K = _Blocks(4, _q4_k_codes, _scales_and_minima)
_Q5_K = _Blocks(5, _q5_k_codes, _scales_and_minima)
_Q6_K = _Blocks(6, _q6_k_codes, _q6_k_real)


# ---- the table ---------------------------------------------------------------------------------------------


def _dense(name: str, size: int, type: DenseType, layout: str) -> GgufType:
    return GgufType(name, 1, size, dense=(type, layout))


TYPES: Final[Mapping[int, GgufType]] = MappingProxyType(
    {
        0: _dense("F32", 4, "f32", "<f4"),
        1: _dense("F16", 2, "f16", "<f2"),
        2: GgufType("Q4_0", 32, 18, blocks=_Q4_0),
        3: GgufType("Q4_1", 32, 20, blocks=_Q4_1),
        6: GgufType("Q5_0", 32, 22, blocks=_Q5_0),
        7: GgufType("Q5_1", 32, 24, blocks=_Q5_1),
        8: GgufType("Q8_0", 32, 34, blocks=_Q8_0),
        10: GgufType("Q2_K", 256, 84),
        11: GgufType("Q3_K", 256, 110),
        12: GgufType("Q4_K", 256, 144, blocks=_Q4_K),
        13: GgufType("Q5_K", 256, 176, blocks=_Q5_K),
        14: GgufType("Q6_K", 256, 210, blocks=_Q6_K),
        16: GgufType("IQ2_XXS", 256, 66),
        17: GgufType("IQ2_XS", 256, 74),
        18: GgufType("IQ3_XXS", 256, 98),
        19: GgufType("IQ1_S", 256, 50),
        20: GgufType("IQ4_NL", 32, 18),
        21: GgufType("IQ3_S", 256, 110),
        22: GgufType("IQ2_S", 256, 82),
        23: GgufType("IQ4_XS", 256, 136),
        24: GgufType("I8", 1, 1),
        25: GgufType("I16", 1, 2),
        26: _dense("I32", 4, "i32", "<i4"),
        27: _dense("I64", 8, "i64", "<i8"),
        28: GgufType("F64", 1, 8),
        29: GgufType("IQ1_M", 256, 56),
        30: _dense("BF16", 2, "bf16", "<u2"),
        34: GgufType("TQ1_0", 256, 54),
        35: GgufType("TQ2_0", 256, 66),
        39: GgufType("MXFP4", 32, 17),
    }
)
"""By their number in the file."""
