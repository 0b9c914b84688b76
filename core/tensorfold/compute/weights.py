"""Named tensors to handles: where a family's names meet a checkpoint's tensors and a backend's packer."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.rehearsal import blank
from tensorfold.compute.shapes import Shape, fits, spelled
from tensorfold.contracts.arrays import A
from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp, Linear
from tensorfold.contracts.tensors import Dense, Tensor, TensorInfo
from tensorfold.contracts.weights import BlockPacker, Packer, VectorFn
from tensorfold.errors import WeightsMismatch

__all__ = ["CheckpointWeights", "TensorSource"]

B = TypeVar("B")


class TensorSource(Protocol):
    """A checkpoint's tensors under their Hugging Face names."""

    def names(self) -> Iterable[str]:
        """Every tensor."""
        ...

    def info(self, name: str) -> TensorInfo:
        """What is known of a tensor without reading it."""
        ...

    def read(self, name: str) -> Tensor:
        """The tensor; its arrays may be read-only views of the file.

        Raises:
            CheckpointDamaged: the file cannot be read there.
        """
        ...


class CheckpointWeights(Generic[A]):
    """`Weights` over a source and a packer. Holds no tensor: each goes from the file straight into a handle."""

    def __init__(
        self, source: TensorSource, packer: Packer[A], *, progress: Callable[[TensorInfo], None] | None = None
    ) -> None:
        """`progress` is told of every tensor when it has been read, the first time."""
        self._source = source
        self._packer = packer
        self._blocks = packer if isinstance(packer, BlockPacker) else None
        self._names = frozenset(source.names())
        self._asked: dict[str, None] = {}
        self._ignored: list[str] = []
        self._progress = progress

    # ---- names ---------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether the checkpoint has this tensor."""
        return name in self._names

    def has_draft(self, name: str) -> bool:
        """Whether the checkpoint has this tensor of a draft head."""
        return self.has(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """The logical shape of a tensor.

        Raises:
            WeightsMismatch: there is no such tensor, or it cannot be read.
        """
        if problem := self._against(name):
            self._problem(name, problem)
            raise WeightsMismatch(f"{name} {problem}")
        return self._source.info(name).shape

    def ignore(self, *patterns: str) -> None:
        """Tensors of these names do not count as unused."""
        self._ignored.extend(patterns)

    def unused(self) -> tuple[str, ...]:
        """Tensors that nobody asked for and that are not ignored, sorted."""
        left = self._names - self._asked.keys()
        return tuple(
            sorted(name for name in left if not any(fnmatch.fnmatchcase(name, each) for each in self._ignored))
        )

    # ---- matrices ------------------------------------------------------------------------------------------

    def linear(
        self,
        *names: str,
        sizes: tuple[int, ...] | None = None,
        columns: int | None = None,
        bias: bool | None = None,
    ) -> Linear:
        """Modules `name.weight` (+ `name.bias`), several as one fused group."""
        expected: Sequence[int | None] = sizes or (None,) * len(names)
        parts: list[Tensor] = []
        biases: list[Tensor | None] = []
        for name, size in zip(names, expected, strict=True):
            weight = self._tensor(f"{name}.weight", (size, columns if columns or not parts else parts[0].shape[1]))
            parts.append(weight)
            biases.append(self._bias(name, weight.shape[0], bias))
        return self._packer.linear(parts, biases)

    def _bias(self, name: str, size: int, wanted: bool | None) -> Tensor | None:
        # A bias that the config rules out is left alone, and so reported as unused.
        if wanted is False or (wanted is None and not self.has(f"{name}.bias")):
            return None
        return self._tensor(f"{name}.bias", (size,))

    def matrix(self, name: str, *, shape: tuple[int, int] | None = None) -> Linear:
        """A bare parameter of this full name, used as a matrix."""
        return self._packer.linear([self._tensor(name, shape or (None, None))], [None])

    def embedding(self, *names: str, shape: tuple[int, int] | None = None) -> Embedding:
        """The table `name.weight`, in one part or in several row shards."""
        rows, hidden = shape or (None, None)
        if len(names) == 1:
            return self._packer.embedding([self._tensor(f"{names[0]}.weight", (rows, hidden))])
        parts = [self._tensor(f"{name}.weight", (None, hidden)) for name in names]
        found = sum(part.shape[0] for part in parts)
        if rows is not None and found != rows:
            self._problem(f"{names[0]}.weight", f"and its {len(names) - 1} other shards have {found} rows, not {rows}")
        return self._packer.embedding(parts)

    def head(self, name: str, tied: Embedding | None, *, shape: tuple[int, int] | None = None) -> Linear:
        """The output head `name.weight`; when tied, the embedding's storage is shared and a stored copy ignored."""
        if tied is not None:
            self.ignore(f"{name}.weight")
            return self._packer.tied(tied)
        return self.linear(name, sizes=shape and shape[:1], columns=shape and shape[1])

    def latent_up(self, name: str, heads: int, nope: int, v: int, *, columns: int | None = None) -> LatentUp:
        """MLA's `kv_b_proj`, module `name`."""
        return self._packer.latent_up(self._tensor(f"{name}.weight", (heads * (nope + v), columns)), heads, nope, v)

    # ---- small tensors -------------------------------------------------------------------------------------

    def vector(
        self, name: str, *, add: float = 0.0, fn: VectorFn | None = None, shape: tuple[int, ...] | None = None
    ) -> A:
        """A tensor of this full name in f32: fn(value + add)."""
        values = self._filled(name, shape)
        if add:
            values = values + np.float32(add)
        if fn is not None:
            # In f64 and rounded once, so that every machine packs the same constant.
            raised = np.exp(values.astype(np.float64))
            values = (raised if fn == "exp" else -raised).astype(np.float32)
        return self._packer.vector(values)

    def floats(self, name: str, *, shape: tuple[int, ...] | None = None) -> NDArray[np.float32]:
        """A small tensor that constants are made from, on the host."""
        return self._filled(name, shape, steers=True)

    def scalar(self, name: str) -> float:
        """A tensor of one element."""
        return float(self._filled(name, (1,), steers=True)[0])

    def ints(self, name: str, *, shape: tuple[int, ...] | None = None) -> NDArray[np.int64]:
        """An integer tensor, on the host."""
        tensor = self._tensor(name, shape, steers=True)
        if self._against(name) or tensor.shape != self._source.info(name).shape:
            return np.zeros(tensor.shape, np.int64)
        if not isinstance(tensor, Dense) or tensor.values.dtype.kind not in "iu" or tensor.type in ("bf16", "f16"):
            self._problem(name, f"is {self._source.info(name).kind}, and must hold integers")
            return np.zeros(tensor.shape, np.int64)
        return tensor.values.astype(np.int64)

    def _filled(self, name: str, shape: tuple[int, ...] | None, *, steers: bool = False) -> NDArray[np.float32]:
        tensor = self._tensor(name, steers=steers)
        if shape is None:
            return tensor.f32()
        if math.prod(tensor.shape) != math.prod(shape):
            if not self._against(name):
                self._problem(name, f"is {spelled(tensor.shape)}, and must be {spelled(shape)}")
            tensor = blank(shape)
        return tensor.f32().reshape(shape)

    def conv(self, *names: str, shape: tuple[int, int] | None = None, bias: bool | None = None) -> ConvWeight:
        """Depthwise convolutions `name.weight` `[C, 1, taps]` (+ bias), joined along the channels."""
        kernels = self._kernels(names, shape)
        kernel = np.concatenate(kernels)
        if shape is not None and kernel.shape != shape and not any(self._against(f"{name}.weight") for name in names):
            self._problem(f"{names[0]}.weight", f"gives {spelled(kernel.shape)}, and must give {spelled(shape)}")
        if bias is False or (bias is None and not any(self.has(f"{name}.bias") for name in names)):
            return self._packer.conv(kernel, None)
        biases = [self._tensor(f"{name}.bias", (len(each),)).f32() for name, each in zip(names, kernels, strict=True)]
        return self._packer.conv(kernel, np.concatenate(biases))

    def _kernels(self, names: tuple[str, ...], shape: tuple[int, int] | None) -> list[NDArray[np.float32]]:
        """`[C, taps]` each."""
        return [self._kernel(f"{name}.weight", None if shape is None else shape[1]) for name in names]

    def _kernel(self, name: str, taps: int | None) -> NDArray[np.float32]:
        """`[C, taps]`; MLX stores the axis of size 1 last."""
        last = self.has(name) and self._source.info(name).shape[2:] == (1,)
        values = self._tensor(name, (None, taps, 1) if last and taps != 1 else (None, 1, taps)).f32()
        return values.reshape(values.shape[0], -1)

    # ---- experts -------------------------------------------------------------------------------------------

    def experts(
        self,
        prefix: str,
        count: int,
        *,
        up: tuple[str, ...] = ("gate_proj", "up_proj"),
        down: str = "down_proj",
        act: Activation = "silu",
        limit: float | None = None,
        shape: tuple[int, int] | None = None,
    ) -> Experts:
        """The experts under a prefix, one by one or stacked; gated when `up` has two names."""
        inner, hidden = shape or (None, None)
        gated = len(up) == 2
        if gated and self.has(f"{prefix}.gate_up_proj"):
            width = None if inner is None else 2 * inner
            fused = self._tensor(f"{prefix}.gate_up_proj", (count, width, hidden))
            half = fused.shape[1] // 2
            upper = [[each.rows(0, half), each.rows(half, 2 * half)] for each in _unstacked(fused)]
        else:
            by_name = [self._each_expert(prefix, name, count, (inner, hidden)) for name in up]
            upper = [list(parts) for parts in zip(*by_name, strict=True)]
        lower = self._each_expert(prefix, down, count, (hidden, inner))
        return self._packer.experts(upper, lower, act=act, gated=gated, limit=limit)

    def _each_expert(
        self, prefix: str, name: str, count: int, shape: tuple[int | None, int | None]
    ) -> Sequence[Tensor]:
        for stacked in (f"{prefix}.{name}", f"{prefix}.{name}.weight"):
            if self.has(stacked):
                return _unstacked(self._tensor(stacked, (count, *shape)))
        return [self._tensor(f"{prefix}.{expert}.{name}.weight", shape) for expert in range(count)]

    # ---- blocks --------------------------------------------------------------------------------------------

    def block(self, block: B) -> B:
        """A block of `compute.layers` as this backend computes it."""
        return block if self._blocks is None else self._blocks.block(block)

    # ---- reading -------------------------------------------------------------------------------------------

    def _tensor(self, name: str, shape: Shape | None = None, *, steers: bool = False) -> Tensor:
        """The tensor, checked; `steers`: its values decide how the model is built, so that even a rehearsal reads it.

        After a problem that was noted instead of raised, a blank of the wanted shape stands in.
        """
        first = name not in self._asked
        self._asked[name] = None
        if problem := self._against(name, shape):
            self._problem(name, problem)
            return blank(shape)
        info = self._source.info(name)
        tensor = self._read(info, steers)
        if first and self._progress is not None:
            self._progress(info)
        return tensor

    def _read(self, info: TensorInfo, steers: bool) -> Tensor:
        return self._source.read(info.name)

    def _against(self, name: str, shape: Shape | None = None) -> str:
        """Why it cannot be taken; empty: it can."""
        if name not in self._names:
            return "is missing"
        info = self._source.info(name)
        if info.problem or shape is None or fits(info.shape, shape):
            return info.problem
        return f"is {spelled(info.shape)}, and must be {spelled(shape)}"

    def _problem(self, name: str, problem: str) -> None:
        raise WeightsMismatch(f"{name} {problem}")


def _unstacked(stack: Tensor) -> Sequence[Tensor]:
    """The matrices of a stack, as views."""
    return [stack.at(place) for place in range(stack.shape[0])]
