"""A device opened for one model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from tensorfold.compute.composed import ComposedSession
from tensorfold.compute.host import host_memory
from tensorfold.compute.store import ComposedStore, store_bytes
from tensorfold.contracts.backend import DeviceMemory
from tensorfold.contracts.family import Decoder, Geometry
from tensorfold.contracts.ops import Ops
from tensorfold.contracts.states import StateSpec, TableKey
from tensorfold.contracts.step import Kind, Step
from tensorfold.errors import BackendError
from tensorfold_backend_torch.ops import ChunkOps, RowsOps
from tensorfold_backend_torch.packing import TorchPacker
from tensorfold_backend_torch.primitives import TorchPrimitives

__all__ = ["TorchSession"]

_KERNELS = 3
"""Goes up whenever the bits of an operation change."""


class TorchSession(ComposedSession[Tensor]):
    """torch on one device, in one type of activations."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        primitives = TorchPrimitives(device, dtype)
        super().__init__(primitives)
        self.packer = TorchPacker(primitives)
        self._primitives = primitives
        self._device = device
        self._name = str(dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        """The GPU's name, or the number of CPU threads."""
        if self._device.type == "cuda":
            return torch.cuda.get_device_name(self._device)
        threads = torch.get_num_threads()
        return f"CPU, {threads} thread{'s' if threads > 1 else ''}"

    @property
    def dtype(self) -> str:
        """Of activations, weights and keys; quantized weights are expanded to it."""
        return self._name

    @property
    def numerics(self) -> str:
        """torch's version and the instruction set or GPU that its kernels are chosen by."""
        kind = (
            torch.cuda.get_device_name(self._device)
            if self._device.type == "cuda"
            else f"cpu-{torch.backends.cpu.get_cpu_capability()}"
        )
        return f"torch-{torch.__version__}/{kind}/{self._name}/kernels-{_KERNELS}"

    @property
    def chunk(self) -> int:
        """About a second of work for a small model on a CPU."""
        return 512 if self._device.type == "cpu" else 2048

    def memory(self) -> DeviceMemory:
        """Of the GPU, or of the host."""
        if self._device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self._device)
            return DeviceMemory(total, free)
        return host_memory()

    def chunk_equals_rows(self, geometry: Geometry) -> bool:
        """Chunks use the library's own products and attention, which give other bits."""
        del geometry
        return False

    def store(
        self, states: Mapping[str, StateSpec], pages: Mapping[TableKey, int], slots: int
    ) -> ComposedStore[Tensor]:
        """All states, as zeros.

        Raises:
            BackendError: the device cannot hold them.
        """
        try:
            return ComposedStore(self._primitives, states, pages, slots)
        except (MemoryError, RuntimeError) as error:
            needed = store_bytes(states, pages, slots, self._primitives)
            raise BackendError(f"the states need {needed:,} bytes, which {self.device} cannot give: {error}") from error

    def composed_ops(self, kind: Kind, store: ComposedStore[Tensor]) -> Ops[Tensor]:
        """Library kernels for chunks, kernels of fixed shapes for rows."""
        return ChunkOps(self._primitives, store) if kind == "chunk" else RowsOps(self._primitives, store)

    def capture(self, decoder: Decoder[Any]) -> Decoder[Any]:
        """The same decoder without the bookkeeping for gradients, about a tenth of each call's cost."""
        return _WithoutGradients(decoder)

    def finish(self) -> None:
        """A GPU computes behind the calls."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def close(self) -> None:
        """Give cached blocks back to the GPU's driver; the host's memory goes with the tensors."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            torch.cuda.empty_cache()


class _WithoutGradients:
    """A decoder whose calls run in inference mode, on whatever thread they come from."""

    def __init__(self, decoder: Decoder[Tensor]) -> None:
        self._decoder = decoder
        self._draft = None if decoder.draft is None else _WithoutGradients(decoder.draft)

    @property
    def draft(self) -> Decoder[Tensor] | None:
        return self._draft

    def prepare(self, step: Step[Tensor]) -> Mapping[str, NDArray[Any]]:
        return self._decoder.prepare(step)

    def forward(self, ops: Ops[Tensor], step: Step[Tensor]) -> Tensor:
        with torch.inference_mode():
            return self._decoder.forward(ops, step)

    def logits(self, ops: Ops[Tensor], hidden: Tensor) -> Tensor:
        with torch.inference_mode():
            return self._decoder.logits(ops, hidden)
