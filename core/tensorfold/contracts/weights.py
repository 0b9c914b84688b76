"""How weights reach a family: it asks by name and gets handles; a backend's packer decides how they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.arrays import A_co
from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp, Linear
from tensorfold.contracts.tensors import Tensor

__all__ = ["Packer", "VectorFn", "Weights"]

VectorFn: TypeAlias = Literal["exp", "neg_exp"]
"""A transform at load. A closed set, for GGUF stores some of them applied, and `checkpoint` has to know."""


class Packer(Protocol[A_co]):
    """A backend's side: neutral tensors in, handles out. Everything is copied; nothing refers to the file after."""

    def linear(self, parts: Sequence[Tensor], biases: Sequence[Tensor | None]) -> Linear:
        """Matrices `[out, in]` of one input width, fused; parts may differ in kind."""
        ...

    def embedding(self, parts: Sequence[Tensor]) -> Embedding:
        """Row blocks `[vocabulary part, hidden]` of one table."""
        ...

    def tied(self, embedding: Embedding) -> Linear:
        """The table as an output head, sharing its storage."""
        ...

    def vector(self, values: NDArray[np.float32]) -> A_co:
        """A small constant, kept in f32."""
        ...

    def conv(self, kernel: NDArray[np.float32], bias: NDArray[np.float32] | None) -> ConvWeight:
        """`[channels, taps]`, oldest tap first; bias `[channels]`."""
        ...

    def experts(
        self,
        up: Sequence[Sequence[Tensor]],
        down: Sequence[Tensor],
        *,
        act: Activation,
        gated: bool,
        limit: float | None,
    ) -> Experts:
        """For each expert its up-side matrices (gate and up, or up alone) and its down matrix."""
        ...

    def latent_up(self, weight: Tensor, heads: int, nope: int, v: int) -> LatentUp:
        """`[heads * (nope + v), latent]`."""
        ...


class Weights(Protocol[A_co]):
    """A family's side. Names are those of the Hugging Face checkpoint, without `.weight` where a module is meant.

    Raises:
        WeightsMismatch: a tensor is missing or has another shape than its neighbours allow.
        CheckpointDamaged: the file cannot be read there.
    """

    def has(self, name: str) -> bool:
        """Whether the checkpoint has this tensor (full name, `.weight` included)."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The logical shape of a tensor, without reading it."""
        ...

    def linear(self, *names: str) -> Linear:
        """Modules `name.weight` (+ `name.bias`), several as one fused group."""
        ...

    def matrix(self, name: str) -> Linear:
        """A bare parameter of this full name, used as a matrix."""
        ...

    def embedding(self, *names: str) -> Embedding:
        """The table `name.weight`, in one part or in several row shards."""
        ...

    def head(self, name: str, tied: Embedding | None) -> Linear:
        """The output head `name.weight`; when tied, the embedding's storage is shared."""
        ...

    def vector(
        self, name: str, *, add: float = 0.0, fn: VectorFn | None = None, shape: tuple[int, ...] | None = None
    ) -> A_co:
        """A tensor of this full name in f32: fn(value + add)."""
        ...

    def scalar(self, name: str) -> float:
        """A tensor of one element."""
        ...

    def ints(self, name: str) -> NDArray[np.int64]:
        """An integer tensor, on the host."""
        ...

    def conv(self, *names: str) -> ConvWeight:
        """Depthwise convolutions `name.weight` `[C, 1, taps]` (+ bias), joined along the channels."""
        ...

    def experts(
        self,
        prefix: str,
        count: int,
        *,
        up: tuple[str, ...] = ("gate_proj", "up_proj"),
        down: str = "down_proj",
        act: Activation = "silu",
        limit: float | None = None,
    ) -> Experts:
        """`prefix.{e}.{up}.weight` one by one, or stacked as `prefix.gate_up_proj`; gated when `up` has two names."""
        ...

    def latent_up(self, name: str, heads: int, nope: int, v: int) -> LatentUp:
        """MLA's `kv_b_proj`, module `name`."""
        ...

    def unused(self) -> tuple[str, ...]:
        """Tensors that nobody asked for, sorted."""
        ...
