"""Words that threads share, and how a thread waits."""

from __future__ import annotations

from typing import Any, Final

from numba import types

from tensorfold_backend_cpu.kernels.emitter import I64, Emitter, operation
from tensorfold_backend_cpu.kernels.levels import LEVEL
from tensorfold_backend_cpu.kernels.untyped import ir

__all__ = [
    "broadcast",
    "fetch_add",
    "lock",
    "pause",
    "read",
    "read_clock",
    "unlock",
    "wait",
    "write",
    "yield_processor",
]

_address = types.int64
_i64 = types.int64


@operation(_i64, _address, _i64)
def fetch_add(e: Emitter, address: Any, value: Any) -> Any:
    """Add to a word; returns what it was."""
    return e.builder.atomic_rmw("add", e.builder.inttoptr(address, I64.as_pointer()), value, "seq_cst")


@operation(_i64, _address)
def read(e: Emitter, address: Any) -> Any:
    """A word, and with it all that was written before it."""
    return e.builder.load_atomic(e.builder.inttoptr(address, I64.as_pointer()), "seq_cst", 8)


@operation(types.void, _address, _i64)
def write(e: Emitter, address: Any, value: Any) -> None:
    """Publish a word."""
    e.builder.store_atomic(value, e.builder.inttoptr(address, I64.as_pointer()), "seq_cst", 8)


@operation(types.void)
def pause(e: Emitter) -> None:
    """Tell the processor that this is a spinning loop."""
    if LEVEL in ("avx512vnni", "avxvnni", "avx2"):
        e.call("llvm.x86.sse2.pause", ir.VoidType())
    else:
        # Elsewhere the loop's own atomic load is what there is; this keeps LLVM from folding the loop.
        e.builder.fence("seq_cst")


_libc: Final = {
    "lock": types.ExternalFunction("pthread_mutex_lock", types.int32(types.int64)),
    "unlock": types.ExternalFunction("pthread_mutex_unlock", types.int32(types.int64)),
    "wait": types.ExternalFunction("pthread_cond_wait", types.int32(types.int64, types.int64)),
    "broadcast": types.ExternalFunction("pthread_cond_broadcast", types.int32(types.int64)),
    "yield": types.ExternalFunction("sched_yield", types.int32()),
    "clock": types.ExternalFunction("clock_gettime", types.int32(types.int32, types.int64)),
}

lock: Any = _libc["lock"]
"""Take the mutex at an address."""
unlock: Any = _libc["unlock"]
wait: Any = _libc["wait"]
"""Sleep on the condition at the first address, giving up the mutex at the second meanwhile."""
broadcast: Any = _libc["broadcast"]
yield_processor: Any = _libc["yield"]
"""Let another thread of this machine run."""
read_clock: Any = _libc["clock"]
"""Put seconds and nanoseconds of a clock, two words, at an address."""
