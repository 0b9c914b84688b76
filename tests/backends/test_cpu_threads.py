"""Threads of the cpu backend: they share work, change no bit, sleep when idle, and hold nobody up."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.tensors import Dense
from tensorfold_backend_cpu import CpuBackend
from tensorfold_backend_cpu.kernels.elementwise import RUN, Add
from tensorfold_backend_cpu.machine import Machine
from tensorfold_backend_cpu.rows import Rows


def eventually(claim: Callable[[], bool]) -> bool:
    """Whether a claim comes true within some seconds."""
    for _ in range(1000):
        if claim():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_calls_run_in_their_order(threads: int) -> None:
    """Each call sees all of the one before it, thousands of times, in programs of every length."""
    machine = Machine(threads)
    ones = np.ones(3 * RUN + 5, np.float32)
    for length in (1, 2, 7, 100, 1500):
        total = Rows.of(machine, np.zeros_like(ones))
        one = Rows.of(machine, ones)
        for _ in range(length):
            total = total + one
        assert np.array_equal(total.values(), ones * length)
    machine.close()


def test_a_tape_that_is_full_is_run() -> None:
    """More single calls than the tape has lines."""
    machine = Machine(2)
    values = np.zeros(16, np.float32)
    one, target = Rows.of(machine, np.ones(16, np.float32)), Rows.of(machine, values)
    for _ in range(5000):
        machine.call(Add(items=1, a=target.address, b=one.address, count=16, out=target.address))
    machine.run()
    assert np.array_equal(values, np.full(16, 5000.0))
    machine.close()


def test_helpers_sleep_when_there_is_nothing_to_do() -> None:
    """A server without requests uses no processor; the next call wakes everybody."""
    machine = Machine(3)
    one = Rows.of(machine, np.ones(2 * RUN, np.float32))
    for _ in range(3):
        assert np.array_equal((one + one).values(), np.full(2 * RUN, 2.0))
        assert eventually(lambda: machine.team.sleeping == 2)
    machine.close()


def test_helpers_go_home_when_a_session_is_closed() -> None:
    """No thread stays behind, whether they sleep or not, and closing twice is harmless."""
    before = threading.active_count()
    for pause in (0.0, 0.05):
        session = CpuBackend().open(BackendSettings(threads=4))
        assert threading.active_count() == before + 3
        time.sleep(pause)
        session.close()
        session.close()
        assert threading.active_count() == before


def product(threads: int, x: NDArray[np.float32], weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """One product on so many threads."""
    session = CpuBackend().open(BackendSettings(threads=threads))
    packed = session.packer.linear([Dense(weight, "f32")], [None])
    got = session.numpy(session.ops("rows", session.store({}, {}, 1), {}).linear(session.array(x), packed))
    session.close()
    return got


def test_the_number_of_threads_changes_no_bit_of_a_product() -> None:
    """1, 2 and 3 threads, for few rows and for many."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((700, 320)).astype(np.float32)
    for rows in (1, 33, 300):
        x = rng.standard_normal((rows, 320)).astype(np.float32)
        one = product(1, x, weight)
        assert all(product(threads, x, weight).tobytes() == one.tobytes() for threads in (2, 3))


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of loaded libraries")
def test_no_threading_library_is_needed() -> None:
    """Kernels run on three threads in a process in which no OpenMP and no TBB can be loaded, and none is."""
    code = (
        "import ctypes, sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "load = ctypes.CDLL.__init__\n"
        "def refuse(self, name, *rest, **named):\n"
        "    assert not name or not {'gomp', 'iomp', 'omp', 'tbb'} & set(str(name).split('lib')[-1].split('.')), name\n"
        "    load(self, name, *rest, **named)\n"
        "ctypes.CDLL.__init__ = refuse\n"
        "sys.modules['numba.np.ufunc.omppool'] = sys.modules['numba.np.ufunc.tbbpool'] = None\n"
        "sys.modules['numba.np.ufunc.workqueue'] = None\n"
        "from tensorfold.contracts.backend import BackendSettings\n"
        "from tensorfold.contracts.tensors import Dense\n"
        "from tensorfold_backend_cpu import CpuBackend\n"
        "session = CpuBackend().open(BackendSettings(threads=3))\n"
        "weight = session.packer.linear([Dense(np.eye(640, dtype=np.float32), 'f32')], [None])\n"
        "ops = session.ops('rows', session.store({}, {}, 1), {})\n"
        "x = session.array(np.ones((5, 640), np.float32))\n"
        "assert np.allclose(session.numpy(ops.linear(x, weight)), 1.0, atol=1e-2)\n"
        "session.close()\n"
        "maps = Path('/proc/self/maps').read_text()\n"
        "assert not [name for name in ('libgomp', 'libiomp', 'libomp', 'libtbb') if name in maps]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=280)


def test_another_thread_goes_on_while_kernels_run() -> None:
    """The interpreter's lock is free while a program runs: another thread counts meanwhile."""
    machine = Machine(1)
    large = Rows.of(machine, np.ones(4 << 20, np.float32))
    counted = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while not stop.is_set():
            counted += 1

    other = threading.Thread(target=count)
    other.start()

    def counts_meanwhile() -> bool:
        for _ in range(20):
            machine.call(Add(items=1024, a=large.address, b=large.address, count=4 << 20, out=large.address))
        before = counted
        machine.run()
        return counted > before

    try:
        assert eventually(counts_meanwhile)
    finally:
        stop.set()
        other.join()
        machine.close()
