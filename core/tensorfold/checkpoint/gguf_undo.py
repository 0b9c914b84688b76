"""What llama.cpp's converter did to a tensor, undone: orders of rows and columns, sums, exponentials, lost axes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.gguf import GgufTensor
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import Affine, Dense, Tensor
from tensorfold.errors import CheckpointDamaged, CheckpointUnsupported

__all__ = ["Place", "restored_shape", "undone"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies, for messages."""

    path: Path
    offset: int
    name: str

    def damaged(self, problem: str) -> CheckpointDamaged:
        """It contradicts the metadata."""
        return CheckpointDamaged(self.path, self.offset, f"tensor {self.name} {problem}")

    def refused(self, problem: str) -> CheckpointUnsupported:
        """It cannot be read."""
        return CheckpointUnsupported(f"{self.path}: tensor {self.name} {problem}")


def restored_shape(shape: tuple[int, ...], rule: GgufTensor) -> tuple[int, ...]:
    """What a tensor of this stored shape becomes."""
    return (shape[0], 1, *shape[1:]) if rule.conv and len(shape) == 2 else shape


def undone(tensor: Tensor, rule: GgufTensor, config: ModelConfig, place: Place) -> Tensor:
    """The tensor as a Hugging Face checkpoint has it.

    Raises:
        CheckpointDamaged: it is of another size than the config implies.
        CheckpointUnsupported: it is quantized in a way that cannot be undone.
    """
    if rule.unpermute is not None:
        heads, rows = config.positive(rule.unpermute), tensor.shape[-2:][0]
        if rows % (2 * heads):
            raise place.damaged(f"has {rows} rows for {heads} heads")
        tensor = _take_rows(tensor, _half_split(rows, heads))
    if rule.rows is not None:
        tensor = _take_rows(tensor, _checked(rule.rows(config, tensor.shape[0]), tensor.shape[0], place))
    if rule.columns is not None:
        tensor = _take_columns(tensor, _checked(rule.columns(config, tensor.shape[-1]), tensor.shape[-1], place))
    if rule.add or rule.log:
        tensor = Dense(_computed(tensor, rule, place), "f32")
    if rule.conv and isinstance(tensor, Dense):
        tensor = Dense(tensor.values.reshape(restored_shape(tensor.shape, rule)), tensor.type)
    return tensor


def _computed(tensor: Tensor, rule: GgufTensor, place: Place) -> NDArray[np.float32]:
    if not isinstance(tensor, Dense):
        done = f"{rule.add:g} must be added to its values" if rule.add else "its values must be made logarithms"
        raise place.refused(f"is quantized, and {done}, which is not exact")
    values = tensor.f32() + np.float32(rule.add)
    if not rule.log:
        return values
    if not (values < 0).all():
        raise place.damaged("must hold negative numbers, whose logarithms are taken")
    return np.log(-values.astype(np.float64)).astype(np.float32)


def _checked(order: NDArray[np.intp], size: int, place: Place) -> NDArray[np.intp]:
    if len(order) != size:
        raise place.damaged(f"has {size} rows or columns, and the metadata implies {len(order)}")
    return order


def _half_split(rows: int, heads: int) -> NDArray[np.intp]:
    """Where each row of half-split rotary order lies among rows that pair neighbours, head by head.

    Row `2 j + s` of a head, half `s` of pair `j`, goes back to `s * half + j`.
    """
    half = rows // heads // 2
    return np.arange(rows).reshape(heads, half, 2).swapaxes(1, 2).reshape(-1)


def _take_rows(tensor: Tensor, order: NDArray[np.intp]) -> Tensor:
    axis = -2 if len(tensor.shape) > 1 else 0
    match tensor:
        case Dense(values, type):
            return Dense(values.take(order, axis), type)
        case Affine():
            codes, scales = tensor.codes.take(order, axis), tensor.scales.take(order, axis)
            return Affine(tensor.bits, tensor.group, codes, scales, tensor.biases.take(order, axis))


def _take_columns(tensor: Tensor, order: NDArray[np.intp]) -> Tensor:
    if isinstance(tensor, Dense):
        return Dense(tensor.values.take(order, -1), tensor.type)
    groups = order.reshape(-1, tensor.group) if len(order) % tensor.group == 0 else None
    if (
        groups is None
        or (groups[:, :1] % tensor.group).any()
        or (groups != groups[:, :1] + np.arange(tensor.group)).any()
    ):
        # Columns of one group come apart.
        return Dense(tensor.f32().take(order, -1), "f32")
    places = groups[:, 0] // tensor.group
    codes = tensor.codes
    taken = codes.reshape(*codes.shape[:-1], len(places), -1).take(places, -2).reshape(codes.shape)
    return Affine(tensor.bits, tensor.group, taken, tensor.scales.take(places, -1), tensor.biases.take(places, -1))
