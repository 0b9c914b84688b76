"""Rows of a table that lies as the panels of a matrix."""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import real
from tensorfold_backend_cpu.kernels.simd import (
    field,
    load_bfloat,
    load_byte,
    load_float,
    load_half,
    load_int,
    store_float,
)

__all__ = ["EmbedAffine", "EmbedFloats"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded(Call):
    """What both kinds share. An item is an id."""

    ids: int
    """32-bit numbers."""
    first: int
    """The id of the part's first row; ids of other parts are left alone."""
    rows: int
    columns: int
    out: int
    out_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedAffine(Embedded):
    """From quantized panels: code * scale, rounded, plus bias."""

    bits: int
    codes: int
    codes_stride: int
    scales: int
    biases: int
    """0: a code is centred at `centre`, a power of two."""
    scales_stride: int
    wide: int
    """Scales and biases are floats instead of half floats."""
    group: int
    """Columns."""
    centre: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedFloats(Embedded):
    """From panels of floats."""

    kind: int
    """In `linear.FLOAT_KINDS`."""
    weight: int
    weight_stride: int


(_IDS, _FIRST, _ROWS, _COLUMNS, _OUT, _OUT_STRIDE) = numbers(Embedded)
(_BITS, _CODES, _CODES_STRIDE, _SCALES, _BIASES, _SCALES_STRIDE, _WIDE, _GROUP, _CENTRE) = numbers(EmbedAffine)[
    len(numbers(Embedded)) :
]
(_KIND, _WEIGHT, _WEIGHT_STRIDE) = numbers(EmbedFloats)[len(numbers(Embedded)) :]


@done_by(EmbedAffine)
def embed_affine(call: int, item: int, scratch: int) -> None:
    """One item of `EmbedAffine`."""
    row = load_int(field(call, _IDS) + 4 * item) - field(call, _FIRST)
    if row < 0 or row >= field(call, _ROWS):
        return
    panel, lane = row // 16, row % 16
    bits, biases, wide, group = field(call, _BITS), field(call, _BIASES), field(call, _WIDE), field(call, _GROUP)
    codes = field(call, _CODES) + panel * field(call, _CODES_STRIDE) + 4 * lane
    scales = field(call, _SCALES) + panel * field(call, _SCALES_STRIDE)
    bias_line = biases + panel * field(call, _SCALES_STRIDE)
    out = field(call, _OUT) + item * field(call, _OUT_STRIDE)
    for column in range(field(call, _COLUMNS)):
        chunk, byte = column // 4, column % 4
        if bits == 4:
            pair = load_byte(codes + 64 * (chunk // 2) + byte)
            code = pair >> 4 if chunk % 2 else pair & 15
        else:
            code = load_byte(codes + 64 * chunk + byte)
        place = column // group * 16 + lane
        scale = load_float(scales + 4 * place) if wide else load_half(scales + 2 * place)
        if biases:
            bias = load_float(bias_line + 4 * place) if wide else load_half(bias_line + 2 * place)
        else:
            bias = -(scale * real(1 << field(call, _CENTRE)))
        store_float(out + 4 * column, real(code) * scale + bias)


@done_by(EmbedFloats)
def embed_floats(call: int, item: int, scratch: int) -> None:
    """One item of `EmbedFloats`."""
    row = load_int(field(call, _IDS) + 4 * item) - field(call, _FIRST)
    if row < 0 or row >= field(call, _ROWS):
        return
    kind = field(call, _KIND)
    weight = field(call, _WEIGHT) + row // 16 * field(call, _WEIGHT_STRIDE)
    out = field(call, _OUT) + item * field(call, _OUT_STRIDE)
    for column in range(field(call, _COLUMNS)):
        place = 16 * column + row % 16
        if kind == 0:
            value = load_float(weight + 4 * place)
        elif kind == 1:
            value = load_half(weight + 2 * place)
        else:
            value = load_bfloat(weight + 2 * place)
        store_float(out + 4 * column, value)
