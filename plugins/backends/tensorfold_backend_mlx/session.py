"""A device opened for one model."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import mlx.core as mx
from numpy.typing import NDArray

from tensorfold.compute.composed import ComposedSession
from tensorfold.compute.host import host_memory
from tensorfold.compute.sampling import draw_rows
from tensorfold.compute.store import ComposedStore, store_bytes
from tensorfold.contracts.backend import DeviceMemory
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.states import StateSpec, TableKey
from tensorfold.contracts.step import Kind, Step
from tensorfold.errors import BackendError
from tensorfold_backend_mlx.elementwise import Elementwise
from tensorfold_backend_mlx.ops import ChunkOps, RowsOps
from tensorfold_backend_mlx.packing import MlxPacker
from tensorfold_backend_mlx.primitives import MlxPrimitives, compute
from tensorfold_backend_mlx.state import MlxStore

__all__ = ["MlxSession"]

_KERNELS = 1
"""Goes up whenever the bits of an operation change."""


class MlxSession(ComposedSession[mx.array]):
    """MLX on one device, in one type of activations."""

    def __init__(self, device: mx.Device, dtype: mx.Dtype, *, keep_codes: bool) -> None:
        primitives = MlxPrimitives(device, dtype)
        super().__init__(primitives)
        self.packer = MlxPacker(primitives, keep_codes=keep_codes)
        self._primitives = primitives
        self._elementwise = Elementwise(dtype, compiles=not primitives.on_host)
        self._stores: weakref.WeakSet[MlxStore] = weakref.WeakSet()
        self._asked: list[mx.array] = []
        self._name = str(dtype).rpartition(".")[2]
        self._keep_codes = keep_codes
        if not primitives.on_host:
            # Memory that the system may not page out, up to what it recommends: a model is read whole for every token.
            mx.set_wired_limit(self.memory().total)

    @property
    def device(self) -> str:
        """The GPU's name, or that it is the CPU."""
        return "CPU" if self._primitives.on_host else str(mx.device_info(mx.gpu)["device_name"])

    @property
    def dtype(self) -> str:
        """Of activations, floating weights and keys."""
        return self._name

    @property
    def numerics(self) -> str:
        """MLX's version and the GPU that its kernels are chosen by."""
        kind = "cpu" if self._primitives.on_host else str(mx.device_info(mx.gpu)["architecture"])
        products = "codes" if self._keep_codes else "floats"
        return f"mlx-{version('mlx')}/{kind}/{self._name}/{products}/kernels-{_KERNELS}"

    @property
    def keeps_codes(self) -> bool:
        """Quantized matrices are multiplied by as they are stored, unless floats were asked for."""
        return self._keep_codes

    @property
    def chunk(self) -> int:
        """What a GPU computes in a fraction of a second; less on a CPU, which is far slower."""
        return 256 if self._primitives.on_host else 1024

    def memory(self) -> DeviceMemory:
        """A GPU has a recommended share of the memory that it has in common with the host."""
        host = host_memory()
        if self._primitives.on_host:
            return host
        total = int(mx.device_info(mx.gpu)["max_recommended_working_set_size"])
        return DeviceMemory(total, max(0, total - mx.get_active_memory()))

    def chunk_equals_rows(self, geometry: Geometry) -> bool:
        """Chunks use other kernels, which give other bits."""
        del geometry
        return False

    def store(self, states: Mapping[str, StateSpec], pages: Mapping[TableKey, int], slots: int) -> MlxStore:
        """All states, as zeros.

        Raises:
            BackendError: the device cannot hold them.
        """
        self._primitives.here()
        needed = store_bytes(states, pages, slots, self._primitives)
        # MLX does not survive memory that it is not given, so it is not asked for what is not there.
        if needed > self.memory().available:
            raise BackendError(f"the states need {needed:,} bytes, which {self.device} cannot give")
        made = MlxStore(self._primitives, states, pages, slots)
        self._stores.add(made)
        return made

    def composed_ops(self, kind: Kind, store: ComposedStore[mx.array]) -> Ops[mx.array]:
        """Kernels for whole chunks, or kernels of shapes that follow from a row alone."""
        made = ChunkOps if kind == "chunk" else RowsOps
        return made(self._primitives, store, self._elementwise)

    def capture(self, decoder: Decoder[Any]) -> Decoder[Any]:
        """The same decoder, whose rows are computed together with the states that they leave."""
        return _Noted(decoder, self._primitives, self._asked)

    def finish(self) -> None:
        """One wait for the rows and for every state: a state that nobody waits for would grow into a long promise."""
        self._primitives.here()
        states = [array for store in self._stores for array in store.arrays()]
        compute(*self._asked, *states)
        self._asked.clear()

    def sample(self, logits: mx.array, draws: Sequence[Draw]) -> list[Drawn]:
        """One token for each draw, by the shared rule; a GPU's memory is the host's, so nothing is moved for it."""
        return draw_rows(self.numpy(logits), draws)

    def close(self) -> None:
        """Give freed memory back; the rest goes with the arrays."""
        self._asked.clear()
        mx.clear_cache()


class _Noted:
    """A decoder that notes what it has promised."""

    def __init__(self, decoder: Decoder[mx.array], primitives: MlxPrimitives, asked: list[mx.array]) -> None:
        self._decoder = decoder
        self._primitives = primitives
        self._asked = asked
        self._draft = None if decoder.draft is None else _Noted(decoder.draft, primitives, asked)

    @property
    def draft(self) -> Decoder[mx.array] | None:
        return self._draft

    def prepare(self, step: Step[mx.array]) -> Mapping[str, NDArray[Any]]:
        return self._decoder.prepare(step)

    def forward(self, ops: Ops[mx.array], step: Step[mx.array]) -> mx.array:
        self._primitives.here()
        hidden = self._decoder.forward(ops, step)
        self._asked.append(hidden)
        return hidden

    def logits(self, ops: Ops[mx.array], hidden: mx.array) -> mx.array:
        self._primitives.here()
        return self._decoder.logits(ops, hidden)
