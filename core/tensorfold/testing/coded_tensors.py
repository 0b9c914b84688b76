"""A checkpoint whose matrices are quantized here, in groups, for tests of what backends make of codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.tensors import Affine, Dense, Tensor, TensorInfo

__all__ = ["CodedTensors", "quantized"]


class CodedTensors:
    """A `TensorSource` over another: matrices, also stacked ones, become codes where their columns fill whole groups.

    `bits` says how many for a tensor's name, or None for one that stays as it is.
    """

    def __init__(self, source: TensorSource, bits: Callable[[str], int | None], *, group: int = 32) -> None:
        self._source = source
        self._bits = bits
        self._group = group

    def names(self) -> Iterable[str]:
        """Those of the other."""
        return self._source.names()

    def info(self, name: str) -> TensorInfo:
        """That of the other: what is quantized keeps its shape."""
        return self._source.info(name)

    def read(self, name: str) -> Tensor:
        """The tensor, or its codes."""
        tensor, bits = self._source.read(name), self._bits(name)
        if bits is None or not isinstance(tensor, Dense) or len(tensor.shape) < 2 or tensor.shape[-1] % self._group:
            return tensor
        return quantized(tensor.f32(), bits, self._group)


def quantized(values: NDArray[np.float32], bits: int, group: int) -> Affine:
    """`[..., rows, columns]` in codes, from the smallest to the largest value of each group.

    Scales and biases have the eight significant bits of bfloat16, as converters for MLX store them.
    """
    groups = values.reshape(*values.shape[:-1], -1, group)
    low, high = groups.min(-1), groups.max(-1)
    scales = _bfloat16(np.maximum(high - low, 1e-6) / ((1 << bits) - 1))
    biases = _bfloat16(low)
    codes = np.clip(np.rint((groups - biases[..., None]) / scales[..., None]), 0, (1 << bits) - 1)
    whole = codes.astype(np.uint8).reshape(values.shape)
    packed = whole if bits > 4 else (whole[..., 0::2] | (whole[..., 1::2] << 4)).astype(np.uint8)
    return Affine(bits, group, np.ascontiguousarray(packed), scales, biases)


def _bfloat16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    exact = np.ascontiguousarray(values, dtype=np.float32)
    return (exact.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
