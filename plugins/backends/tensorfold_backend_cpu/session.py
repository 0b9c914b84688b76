"""This machine's processors opened for one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numba
import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.host import host_memory
from tensorfold.compute.numpy_primitives import NumpyPrimitives
from tensorfold.contracts.backend import DeviceMemory, StateStore
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.sampling import Draw, Drawn
from tensorfold.contracts.states import Recurrent, StateSpec, TableKey
from tensorfold.contracts.step import Kind
from tensorfold.errors import BackendError
from tensorfold_backend_cpu.capturing import CapturedDecoder
from tensorfold_backend_cpu.cells import Cells
from tensorfold_backend_cpu.kernels.levels import LEVEL
from tensorfold_backend_cpu.kernels.warming import compile_kernels, compile_recurrences
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.ops import CpuOps
from tensorfold_backend_cpu.packing import CpuPacker, WeightsMode
from tensorfold_backend_cpu.rows import Rows
from tensorfold_backend_cpu.sampling import sample
from tensorfold_backend_cpu.state import CpuStore, page_bytes

__all__ = ["CpuSession"]

_KERNELS: Final = 4
"""Goes up whenever the bits of an operation change."""
_CHUNK: Final = 512
_CHUNK_PRODUCTS: Final = 1 << 37
"""Multiplications of a chunk at most: about a second of two ordinary cores."""


class CpuSession:
    """Kernels over memory of this process."""

    def __init__(self, threads: int, mode: WeightsMode) -> None:
        self._half = mode != "exact"
        compile_kernels(half=self._half)
        self.machine = Machine(threads)
        """Records and runs."""
        self._cells = Cells(self.machine)
        self._primitives = NumpyPrimitives()
        self._mode: WeightsMode = mode
        self.packer = CpuPacker(self.machine, self._primitives, mode)

    # ---- what it is ------------------------------------------------------------------------------------------

    @property
    def device(self) -> str:
        """Threads, instructions, and what becomes of weights."""
        threads = self.machine.team.threads
        return f"CPU, {threads} thread{'s' if threads > 1 else ''}, {LEVEL} kernels, weights {self._mode}"

    @property
    def keeps_codes(self) -> bool:
        """Integer codes stay what they are, unless all is to be computed with floats."""
        return self._mode != "exact"

    @property
    def dtype(self) -> str:
        """Of activations between operations."""
        return "float32"

    @property
    def numerics(self) -> str:
        """All instruction sets give the same bits; composed operations are numpy's."""
        return f"cpu/kernels-{_KERNELS}/{self._mode}/float32/numpy-{np.__version__}/numba-{numba.__version__}"

    @property
    def chunk(self) -> int:
        """512 rows, or fewer of a large model, so that running replies wait about a second at most."""
        chunk = _CHUNK
        while chunk > 64 and chunk * self.packer.products > _CHUNK_PRODUCTS:
            chunk //= 2
        return chunk

    def memory(self) -> DeviceMemory:
        """The host's."""
        return host_memory()

    def chunk_equals_rows(self, geometry: Geometry) -> bool:
        """Both kinds of Step use the same operations."""
        del geometry
        return True

    def capture(self, decoder: Decoder[Any]) -> Decoder[Any]:
        """The same decoder, whose steps of few rows are recorded once for each number of them."""
        return CapturedDecoder(decoder, self.machine, self._cells)

    # ---- states and operations -------------------------------------------------------------------------------

    def page_bytes(self, spec: StateSpec) -> int:
        """Bytes of one page of a paged state, or of one slot of a fixed-size state."""
        return page_bytes(spec, self._half, self._primitives)

    def store(self, states: Mapping[str, StateSpec], pages: Mapping[TableKey, int], slots: int) -> StateStore:
        """All states, as zeros."""
        if any(isinstance(spec, Recurrent) for spec in states.values()):
            compile_recurrences()
        return CpuStore(self.machine, self._primitives, states, pages, slots, half=self._half)

    def ops(self, kind: Kind, store: StateStore, states: Mapping[str, StateSpec]) -> Ops[Rows]:
        """The operations of either kind."""
        del kind, states
        if not isinstance(store, CpuStore):
            raise BackendError("these operations run over a store of their own session")
        return CpuOps(self.machine, self._cells, self._primitives, store)

    # ---- host and device -------------------------------------------------------------------------------------

    def array(self, values: NDArray[Any]) -> Rows:
        """A copy."""
        return Rows.of(self.machine, np.array(values, order="C"))

    def numpy(self, x: Rows) -> NDArray[np.float32]:
        """A copy, once it is computed."""
        return np.array(x.values(), np.float32)

    def finish(self) -> None:
        """Carry out what is recorded."""
        self.machine.run()

    def sample(self, logits: Rows, draws: Sequence[Draw]) -> list[Drawn]:
        """By the shared rule."""
        return sample(self.machine, logits.packed(), draws)

    def close(self) -> None:
        """Send the threads home."""
        self.machine.close()
