"""How weights reach a family: it asks by name and gets handles; a backend's packer decides how they lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from tensorfold.contracts.arrays import A_co
from tensorfold.contracts.handles import Activation, ConvWeight, Embedding, Experts, LatentUp, Linear

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tensorfold.contracts.tensors import Tensor

__all__ = ["BlockPacker", "Packer", "VectorFn", "Weights"]

B = TypeVar("B")
"""A block: a callable `(ops, step, rows) -> rows` that holds its handles and constants in the open."""

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


@runtime_checkable
class BlockPacker(Protocol):
    """A packer whose backend computes some whole blocks of `compute.layers` better than operation by operation."""

    def block(self, block: B) -> B:
        """The block itself, or one that computes the same from the handles and constants that it holds.

        Asked once for every block, while the decoder is built, parts before the whole; what it returns is called
        with the operations of either kind, and keeps their rules.
        """
        ...


class Weights(Protocol[A_co]):
    """A family's side. Names are those of the Hugging Face checkpoint, without `.weight` where a module is meant.

    A family says which shapes its config implies, so that a checkpoint of another model is refused, every tensor by
    name, before a weight is read: the model is built once over names and shapes alone, then over the weights.

    Raises:
        WeightsMismatch: tensors are missing, unexpected or misshapen.
        CheckpointDamaged: the file cannot be read there.
    """

    def has(self, name: str) -> bool:
        """Whether the checkpoint has this tensor (full name, `.weight` included)."""
        ...

    def has_draft(self, name: str) -> bool:
        """Whether the checkpoint has its draft head, told by a tensor (full name) that only the head has."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """The logical shape of a tensor, without reading it."""
        ...

    def linear(
        self,
        *names: str,
        sizes: tuple[int, ...] | None = None,
        columns: int | None = None,
        bias: bool | None = None,
    ) -> Linear:
        """Modules `name.weight` (+ `name.bias`), several as one fused group.

        `sizes` are the output rows of each, `columns` the input width. `bias`: every module has one, or none has;
        None takes what is there.
        """
        ...

    def matrix(self, name: str, *, shape: tuple[int, int] | None = None) -> Linear:
        """A bare parameter of this full name, used as a matrix."""
        ...

    def embedding(self, *names: str, shape: tuple[int, int] | None = None) -> Embedding:
        """The table `name.weight`, in one part or in several row shards; `shape` is that of the whole table."""
        ...

    def head(self, name: str, tied: Embedding | None, *, shape: tuple[int, int] | None = None) -> Linear:
        """The output head `name.weight`; when tied, the embedding's storage is shared and a stored copy ignored."""
        ...

    def vector(
        self, name: str, *, add: float = 0.0, fn: VectorFn | None = None, shape: tuple[int, ...] | None = None
    ) -> A_co:
        """A tensor of this full name in f32: fn(value + add), in this shape, which it must fill."""
        ...

    def scalar(self, name: str) -> float:
        """A tensor of one element."""
        ...

    def ints(self, name: str, *, shape: tuple[int, ...] | None = None) -> NDArray[np.int64]:
        """An integer tensor, on the host."""
        ...

    def floats(self, name: str, *, shape: tuple[int, ...] | None = None) -> NDArray[np.float32]:
        """A small tensor that constants are made from (rotary factors), on the host."""
        ...

    def conv(self, *names: str, shape: tuple[int, int] | None = None, bias: bool | None = None) -> ConvWeight:
        """Depthwise convolutions `name.weight` `[C, 1, taps]` (+ bias), joined along the channels.

        `shape` is `(channels, taps)` of the whole, `bias` as in `linear`. MLX's layout `[C, taps, 1]` is read too.
        """
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
        shape: tuple[int, int] | None = None,
    ) -> Experts:
        """`prefix.{e}.{up}.weight` one by one, or stacked; gated when `up` has two names.

        Stacked is `prefix.gate_up_proj` `[E, 2 I, H]` and `prefix.down_proj` `[E, H, I]`, or each name of its own,
        `prefix.{up}` (or `prefix.{up}.weight`) `[E, I, H]`. `shape` is `(I, H)`.
        """
        ...

    def latent_up(self, name: str, heads: int, nope: int, v: int, *, columns: int | None = None) -> LatentUp:
        """MLA's `kv_b_proj`, module `name`; `columns` is the latent's width."""
        ...

    def block(self, block: B) -> B:
        """A block of `compute.layers` as this backend computes it: its own version, or the one given."""
        ...

    def ignore(self, *patterns: str) -> None:
        """Tensors that this family does not run and need not (`*` stands for anything): they do not count as unused."""
        ...

    def unused(self) -> tuple[str, ...]:
        """Tensors that nobody asked for and that are not ignored, sorted."""
        ...
