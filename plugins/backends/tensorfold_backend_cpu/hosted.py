"""Every operation on the host: the composed ones on numpy, whose products are this backend's own.

What has a kernel is overridden in `pure` and `ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.composed import ComposedOps
from tensorfold.compute.primitives import Primitives
from tensorfold.compute.store import ComposedStore
from tensorfold.contracts.handles import Experts, LatentUp, Linear
from tensorfold.contracts.ops import Selection
from tensorfold.contracts.step import Step
from tensorfold.errors import BackendError
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.rows import Rows

__all__ = ["HostedOps", "ours"]

Array = NDArray[Any]
T = TypeVar("T")


def ours(packed: object, kind: type[T]) -> T:
    """What this backend made.

    Raises:
        BackendError: another backend did.
    """
    if not isinstance(packed, kind):
        raise BackendError(f"a weight was packed as {type(packed).__name__}, and this backend packs {kind.__name__}")
    return packed


class _HostOps(ComposedOps[Array]):
    """Composed on numpy, over products that are given."""

    def __init__(
        self, primitives: Primitives[Array], store: ComposedStore[Array], linear: Callable[[Array, Linear], Array]
    ) -> None:
        super().__init__(primitives, store)
        self._linear = linear

    def linear(self, x: Array, weight: Linear, *, wide: bool = False) -> Array:
        return self._linear(x, weight)


class HostedOps:
    """Operations that read their arguments on the host, which carries out what is recorded, and compute there."""

    def __init__(self, machine: Machine, primitives: Primitives[Array], store: ComposedStore[Array]) -> None:
        self.machine = machine
        self._composed = _HostOps(primitives, store, self._product)

    def _product(self, x: Array, weight: Linear) -> Array:
        return np.array(self.linear(Rows.of(self.machine, np.ascontiguousarray(x)), weight).values())

    def host(self, name: str, *arguments: Any, **named: Any) -> Any:
        """A composed operation: arrays are read, and arrays that it returns become rows."""
        operation = getattr(self._composed, name)
        read = {key: self._read(value) for key, value in named.items()}
        return self._wrapped(operation(*(self._read(each) for each in arguments), **read))

    def _read(self, value: Any) -> Any:
        # Copies, for a state keeps its inputs until they are committed, and the pool lends their memory before.
        match value:
            case Rows():
                return np.array(value.values())
            case list():
                return [self._read(each) for each in cast("list[Any]", value)]
            case _:
                return value

    def _wrapped(self, result: Any) -> Any:
        match result:
            case np.ndarray():
                return Rows.of(self.machine, cast("Array", result))
            case tuple():
                return tuple(self._wrapped(each) for each in cast("tuple[Any, ...]", result))
            case _:
                return result

    # ---- shape and products ----------------------------------------------------------------------------------

    def linear(self, x: Rows, weight: Linear, *, wide: bool = False) -> Rows:
        """By kernels, always in f32."""
        raise NotImplementedError

    def concat(self, xs: Sequence[Rows], axis: int = -1) -> Rows:
        return cast("Rows", self.host("concat", list(xs), axis))

    # ---- norms -----------------------------------------------------------------------------------------------

    def layer_norm(self, x: Rows, weight: Rows, bias: Rows | None, eps: float) -> Rows:
        return cast("Rows", self.host("layer_norm", x, weight, bias, eps))

    # ---- elementwise -----------------------------------------------------------------------------------------

    def sqrt(self, x: Rows) -> Rows:
        return cast("Rows", self.host("sqrt", x))

    def abs(self, x: Rows) -> Rows:
        return cast("Rows", self.host("abs", x))

    def sign(self, x: Rows) -> Rows:
        return cast("Rows", self.host("sign", x))

    # ---- reductions ------------------------------------------------------------------------------------------

    def softmax(self, x: Rows, axis: int = -1) -> Rows:
        return cast("Rows", self.host("softmax", x, axis))

    def sum(self, x: Rows, axis: int) -> Rows:
        return cast("Rows", self.host("sum", x, axis))

    def sinkhorn(self, x: Rows, iterations: int, eps: float) -> Rows:
        return cast("Rows", self.host("sinkhorn", x, iterations, eps))

    # ---- experts ---------------------------------------------------------------------------------------------

    def experts(self, x: Rows, ids: Rows, weights: Rows, experts: Experts) -> Rows:
        return cast("Rows", self.host("experts", x, ids, weights, experts))

    # ---- states ----------------------------------------------------------------------------------------------

    def attend_latent(
        self,
        step: Step[Rows],
        name: str,
        q_nope: Rows,
        q_rope: Rows | None,
        latent: Rows,
        k_rope: Rows | None,
        up: LatentUp,
        *,
        scale: float,
        select: Selection | None = None,
    ) -> Rows:
        read = self.host("attend_latent", step, name, q_nope, q_rope, latent, k_rope, up, scale=scale, select=select)
        return cast("Rows", read)

    def index_topk(
        self, step: Step[Rows], name: str, q: Rows, k: Rows, weights: Rows | None, *, topk: int, scale: float
    ) -> Selection:
        return cast("Selection", self.host("index_topk", step, name, q, k, weights, topk=topk, scale=scale))

    def recent(self, step: Step[Rows], name: str, x: Rows) -> Rows:
        return cast("Rows", self.host("recent", step, name, x))
