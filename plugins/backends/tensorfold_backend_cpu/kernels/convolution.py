"""Causal depthwise convolutions of short reach: each channel of a row with its own last inputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tensorfold_backend_cpu.kernels.calls import Call, done_by, numbers
from tensorfold_backend_cpu.kernels.compiling import kernel, real
from tensorfold_backend_cpu.kernels.elementwise import activated
from tensorfold_backend_cpu.kernels.lanes import put, some
from tensorfold_backend_cpu.kernels.recurrent import RUN_WORDS
from tensorfold_backend_cpu.kernels.simd import field, fma, splat

__all__ = ["CHANNELS", "ShortConv", "short_conv"]

CHANNELS: Final = 512
"""Of one item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortConv(Call):
    """act(bias + sum of kernel[tap] input[tap]); an item is `CHANNELS` channels of one sequence.

    The state before is read and stays as it is: the last inputs `[keep, channels]`, oldest first. Those after all rows
    are left elsewhere.
    """

    runs: int
    """Address of a word with that of `[sequences, 4]` words, as the recurrences have them."""
    channels: int
    taps: int
    dilation: int
    x: int
    x_stride: int
    """Bytes from row to row."""
    weight: int
    """`[taps, channels]`, oldest tap first."""
    bias: int
    """`[channels]`, or 0."""
    act: int
    """Number of the activation; -1: none."""
    out: int
    """`[R, channels]`."""


(_RUNS, _CHANNELS, _TAPS, _DILATION, _X, _X_STRIDE, _WEIGHT, _BIAS, _ACT, _OUT) = numbers(ShortConv)


@kernel
def input_of(call: int, run: int, number: int, column: int) -> int:
    """Where a channel of input `number` of a sequence is: counted from its first new row on, kept ones below zero."""
    keep = (field(call, _TAPS) - 1) * field(call, _DILATION)
    new: int = field(call, _X) + (field(run, 0) + number) * field(call, _X_STRIDE)
    kept: int = field(run, 2) + 4 * field(call, _CHANNELS) * (keep + number)
    return (new if number >= 0 else kept) + 4 * column


@done_by(ShortConv)
def short_conv(call: int, item: int, scratch: int) -> None:
    """One item of `ShortConv`."""
    channels, taps, dilation = field(call, _CHANNELS), field(call, _TAPS), field(call, _DILATION)
    weight, bias, act = field(call, _WEIGHT), field(call, _BIAS), field(call, _ACT)
    parts = (channels + CHANNELS - 1) // CHANNELS
    run = field(field(call, _RUNS), 0) + 8 * RUN_WORDS * (item // parts)
    first, rows, after = field(run, 0), field(run, 1), field(run, 3)
    begin = item % parts * CHANNELS
    keep = (taps - 1) * dilation
    for column in range(begin, min(channels, begin + CHANNELS), 16):
        count = channels - column
        for number in range(rows):
            total = some(bias + 4 * column, count) if bias else splat(real(0.0))
            for tap in range(taps):
                place = input_of(call, run, number - (taps - 1 - tap) * dilation, column)
                total = fma(some(place, count), some(weight + 4 * (channels * tap + column), count), total)
            out = field(call, _OUT) + 4 * (channels * (first + number) + column)
            put(out, activated(total, act) if act >= 0 else total, count)
        for kept in range(keep):
            place = input_of(call, run, rows - keep + kept, column)
            put(after + 4 * (channels * kept + column), some(place, count), count)
