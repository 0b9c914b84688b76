"""Rotary positions, and keys and values on their way into pages."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.norm import normalize
from tensorfold_backend_cpu.kernels.simd import (
    add,
    field,
    load_first,
    load_float,
    load_int,
    multiply,
    real_field,
    store_first,
    store_float,
    store_half,
    subtract,
)

__all__ = ["PreparedAttention", "Rotate", "WriteKeys"]

PAGE = 64
_LARGEST_FLOAT, _LARGEST_HALF = real(3.4028234663852886e38), real(65504.0)


@kernel
def rotate(x: int, width: int, cosines: int, sines: int, pairs: int, interleaved: int, out: int) -> None:
    """One head: pairs (i, i + pairs), or (2 i, 2 i + 1), are turned; what lies behind them stays. `out` may be `x`."""
    if interleaved:
        for pair in range(pairs):
            left, right = load_float(x + 8 * pair), load_float(x + 8 * pair + 4)
            cosine, sine = load_float(cosines + 4 * pair), load_float(sines + 4 * pair)
            store_float(out + 8 * pair, left * cosine - right * sine)
            store_float(out + 8 * pair + 4, right * cosine + left * sine)
    else:
        second = 4 * pairs
        for start in range(0, pairs, 16):
            here, count = 4 * start, min(16, pairs - start)
            left, right = load_first(x + here, count), load_first(x + second + here, count)
            cosine, sine = load_first(cosines + here, count), load_first(sines + here, count)
            store_first(out + here, subtract(multiply(left, cosine), multiply(right, sine)), count)
            store_first(out + second + here, add(multiply(right, cosine), multiply(left, sine)), count)
    if out != x:
        for index in range(2 * pairs, width):
            store_float(out + 4 * index, load_float(x + 4 * index))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotate(Call):
    """Heads turned by their row's position; an item is a row."""

    x: int
    x_stride: int
    """Bytes from row to row."""
    heads: int
    width: int
    tables: int
    """Address of two words: the addresses of the cosines and of the sines, `[places, pairs]` floats each."""
    places: int
    """Address of the word that holds the address of 32-bit numbers: each row's line of the tables."""
    pairs: int
    interleaved: int
    out: int
    out_stride: int


(_X, _X_STRIDE, _HEADS, _WIDTH, _TABLES, _PLACES, _PAIRS, _INTERLEAVED, _OUT, _OUT_STRIDE) = numbers(Rotate)


@kernel
def table_line(tables: int, places: int, row: int, pairs: int) -> tuple[int, int]:
    """Where the cosines and the sines of a row are."""
    line = 4 * pairs * load_int(field(places, 0) + 4 * row)
    return field(tables, 0) + line, field(tables, 1) + line


@done_by(Rotate)
def rotate_rows(call: int, row: int, scratch: int) -> None:
    """One item of `Rotate`."""
    heads, width, pairs = field(call, _HEADS), field(call, _WIDTH), field(call, _PAIRS)
    cosines, sines = table_line(field(call, _TABLES), field(call, _PLACES), row, pairs)
    x, out = field(call, _X) + row * field(call, _X_STRIDE), field(call, _OUT) + row * field(call, _OUT_STRIDE)
    for head in range(heads):
        place = 4 * head * width
        rotate(x + place, width, cosines, sines, pairs, field(call, _INTERLEAVED), out + place)


# ---- pages ------------------------------------------------------------------------------------------------------


@kernel
def finite(value: float, largest: float) -> float:
    """What is not finite is cut to what is: a page's next owner multiplies what it does not see by zero."""
    if math.isnan(value):
        return real(0.0)
    return min(max(value, -largest), largest)


@kernel
def write_head(
    key: int, value: int, keys: int, values: int, k_width: int, v_width: int, v_line: int, place: int, half: int
) -> None:
    """One head's key and value into its page: keys are columns `[k_width, 64]`, values lines `[64, v_line]`."""
    if half:
        for index in range(k_width):
            store_half(keys + 2 * (PAGE * index + place), finite(load_float(key + 4 * index), _LARGEST_HALF))
        for index in range(v_width):
            store_half(values + 2 * (v_line * place + index), finite(load_float(value + 4 * index), _LARGEST_HALF))
    else:
        for index in range(k_width):
            store_float(keys + 4 * (PAGE * index + place), finite(load_float(key + 4 * index), _LARGEST_FLOAT))
        for index in range(v_width):
            store_float(values + 4 * (v_line * place + index), finite(load_float(value + 4 * index), _LARGEST_FLOAT))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Call):
    """What both ways of writing share. An item is a row."""

    keys: int
    """The pool `[pages, heads, k_width, 64]`, in floats or half floats."""
    values: int
    """The pool `[pages, heads, 64, v_line]`."""
    kv_heads: int
    k_width: int
    v_width: int
    v_line: int
    half: int
    pages: int
    """Address of the word that holds the address of two 32-bit numbers a row: its page, and its place in the page."""


(_KEYS, _VALUES, _KV_HEADS, _K_WIDTH, _V_WIDTH, _V_LINE, _HALF, _PAGES) = numbers(Written)
_SHARED = len(numbers(Written))


@kernel
def write_row(call: int, row: int, key: int, value: int) -> None:
    """All heads of a row, which lie side by side."""
    k_width, v_width, v_line = field(call, _K_WIDTH), field(call, _V_WIDTH), field(call, _V_LINE)
    half, kv_heads = field(call, _HALF), field(call, _KV_HEADS)
    width = 2 if half else 4
    where = field(field(call, _PAGES), 0) + 8 * row
    first, place = load_int(where) * kv_heads, load_int(where + 4)
    for head in range(kv_heads):
        keys = field(call, _KEYS) + width * (first + head) * k_width * PAGE
        values = field(call, _VALUES) + width * (first + head) * v_line * PAGE
        write_head(
            key + 4 * head * k_width, value + 4 * head * v_width, keys, values, k_width, v_width, v_line, place, half
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteKeys(Written):
    """Keys and values as they are."""

    k: int
    k_stride: int
    v: int
    v_stride: int


(_K, _K_STRIDE, _V, _V_STRIDE) = numbers(WriteKeys)[_SHARED:]


@done_by(WriteKeys)
def write_keys(call: int, row: int, scratch: int) -> None:
    """One item of `WriteKeys`."""
    key, value = field(call, _K) + row * field(call, _K_STRIDE), field(call, _V) + row * field(call, _V_STRIDE)
    write_row(call, row, key, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedAttention(Written):
    """Queries, keys and values side by side in a row: normalized by head, turned, and keys and values written.

    Queries stay where they are.
    """

    x: int
    x_stride: int
    heads: int
    q_norm: int
    """Weights of the query heads' normalization `[k_width]`; 0: none."""
    k_norm: int
    eps: float
    tables: int
    """As in `Rotate`; 0: positions are not encoded."""
    places: int
    pairs: int
    interleaved: int


(_P_X, _P_X_STRIDE, _P_HEADS, _Q_NORM, _K_NORM, _EPS, _P_TABLES, _P_PLACES, _P_PAIRS, _P_INTERLEAVED) = numbers(
    PreparedAttention
)[_SHARED:]


@done_by(PreparedAttention)
def prepare_attention(call: int, row: int, scratch: int) -> None:
    """One item of `PreparedAttention`."""
    x = field(call, _P_X) + row * field(call, _P_X_STRIDE)
    heads, kv_heads, width = field(call, _P_HEADS), field(call, _KV_HEADS), field(call, _K_WIDTH)
    tables, pairs = field(call, _P_TABLES), field(call, _P_PAIRS)
    q_norm, k_norm = field(call, _Q_NORM), field(call, _K_NORM)
    cosines = sines = 0
    if tables:
        cosines, sines = table_line(tables, field(call, _P_PLACES), row, pairs)
    for head in range(heads + kv_heads):
        place = x + 4 * head * width
        weight = q_norm if head < heads else k_norm
        if weight:
            normalize(place, weight, width, real_field(call, _EPS), place)
        if tables:
            rotate(place, width, cosines, sines, pairs, field(call, _P_INTERLEAVED), place)
    key = x + 4 * heads * width
    write_row(call, row, key, key + 4 * kv_heads * width)
