"""The MLX backend as the server meets it: what it is opened with, what it says, what it does without MLX."""

from __future__ import annotations

import importlib
import importlib.util
import platform
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.runner import HiddenRows, Runner
from tensorfold.compute.store import ComposedStore
from tensorfold.contracts.backend import BackendSettings, CanCapture, Session
from tensorfold.contracts.states import KV, TableKey
from tensorfold.contracts.step import Kind, Segment
from tensorfold.contracts.tensors import Dense
from tensorfold.errors import BackendError, ConfigError, PluginUnavailable
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_decoder
from tensorfold_backend_mlx import MlxBackend, tensorfold_backends
from tensorfold_backend_mlx.primitives import MlxPrimitives

mx = pytest.importorskip("mlx.core")
pytestmark = pytest.mark.mlx

CPU = BackendSettings(device="cpu")
KEY = TableKey("main", None)


def opened(settings: BackendSettings = CPU) -> Session[Any]:
    """A session on the CPU."""
    return MlxBackend().open(settings)


def fake_runner(session: Session[Any]) -> Runner[Any]:
    """The fake family, which has every kind of state, loaded on this thread."""
    config = fake_config()
    geometry = FakeFamily().geometry(config)
    keys = {
        KEY,
        TableKey("draft", None),
        *(TableKey.of(each) for each in geometry.states.values() if isinstance(each, KV)),
    }
    return Runner(
        fake_decoder(session.packer, config), session, geometry, lanes=1, pages=dict.fromkeys(keys, 8), identity="fake"
    )


# ---- what it is opened with ----------------------------------------------------------------------------------


def test_the_plugin_answers_without_importing_mlx() -> None:
    """Asking which backends there are, and whether they suit a machine without Metal, imports nothing heavy."""
    code = (
        "import sys\n"
        "sys.platform = 'linux'\n"
        "import tensorfold_backend_mlx as plugin\n"
        "[backend] = plugin.tensorfold_backends()\n"
        "assert backend.name == 'mlx' and 0 < backend.probe().score < 5\n"
        "assert 'mlx.core' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_mlx_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither probing nor opening fails with an import error."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mlx" else found(name))
    [backend] = tensorfold_backends()
    with pytest.raises(PluginUnavailable, match=r"pip install 'tensorfold\[mlx\]'"):
        backend.probe()
    with pytest.raises(PluginUnavailable, match="needs mlx"):
        backend.open(CPU)


def test_mlx_without_the_library_of_a_device_is_said_to_be_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Linux the package alone cannot be imported: the CPU's library is another one."""

    def fails(name: str) -> None:
        raise ImportError(f"libmlx.so: cannot open shared object file (of {name})")

    monkeypatch.setattr(importlib, "import_module", fails)
    with pytest.raises(PluginUnavailable, match=r"not for this machine \(libmlx.so.*pip install 'tensorfold\[mlx\]'"):
        opened()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (BackendSettings(device="cuda"), "'cuda', and the mlx backend runs on gpu .or metal. and on cpu"),
        (BackendSettings(device="cpu", dtype="int8"), "'int8', and the mlx backend computes in"),
        (BackendSettings(device="cpu", threads=0), "threads is 0"),
        (BackendSettings(device="cpu", weights="int4"), "weights is 'int4'.*quantize the checkpoint instead"),
    ],
)
def test_a_setting_that_cannot_be_given_is_declined_by_name(settings: BackendSettings, message: str) -> None:
    """The value, the rule and what there is instead."""
    with pytest.raises(ConfigError, match=message):
        opened(settings)


@pytest.mark.skipif(mx.metal.is_available(), reason="this machine has Metal")
@pytest.mark.parametrize("device", ["gpu", "metal"])
def test_a_gpu_that_is_not_there_is_declined(device: str) -> None:
    """Nobody is served by the CPU who asked for a GPU."""
    with pytest.raises(ConfigError, match="finds no Metal: use --device cpu"):
        opened(BackendSettings(device=device))


@pytest.mark.skipif(mx.metal.is_available(), reason="this machine has Metal")
def test_a_cpu_is_the_last_choice() -> None:
    """Any backend that is made for a CPU comes before it."""
    assert MlxBackend().probe().score == 1


def test_metal_is_preferred_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any other device that a Mac has; told by the chip's name."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    monkeypatch.setattr(mx, "device_info", lambda device: {"device_name": f"Apple M5 Max, {device}"})
    found = MlxBackend().probe()
    assert found.score > 50
    assert found.device.startswith("Apple M5 Max")


def test_a_cpu_computes_in_float32_unless_told_otherwise() -> None:
    """Whatever the checkpoint is stored in: only products in float32 are fast there."""
    assert opened(BackendSettings(device="cpu", checkpoint_dtype="bfloat16")).dtype == "float32"
    assert opened(BackendSettings(device="cpu", dtype="bfloat16")).dtype == "bfloat16"


def test_the_numerics_name_what_decides_bits() -> None:
    """Snapshots of another MLX, device, type or kind of products do not fit."""
    numerics = opened().numerics
    assert mx.__version__ in numerics and "cpu" in numerics
    assert numerics != opened(BackendSettings(device="cpu", dtype="bfloat16")).numerics
    assert numerics != opened(BackendSettings(device="cpu", weights="exact")).numerics


# ---- memory --------------------------------------------------------------------------------------------------


def test_states_take_half_the_memory_in_bfloat16() -> None:
    """Keys and values are kept in the type of activations."""
    spec = KV(2, 16, 16)
    wide = opened().page_bytes(spec)
    assert wide == 64 * 2 * 32 * 4
    assert opened(BackendSettings(device="cpu", dtype="bfloat16")).page_bytes(spec) == wide // 2


@pytest.mark.parametrize("pages", [1 << 30, 1 << 32])
def test_pools_that_the_machine_cannot_hold_are_refused_with_their_size(pages: int) -> None:
    """An allocation that fails is no crash, nor is a size that MLX has no number for."""
    with pytest.raises(BackendError, match=r"the states need [\d,]{16,} bytes"):
        opened().store({"kv": KV(8, 128, 128)}, {KEY: pages}, 1)


def test_a_step_writes_to_the_pool_that_is_there() -> None:
    """Rows are written without a second copy of the pool, step after step."""
    session = opened()
    spec = KV(8, 64, 64)
    store = session.store({"kv": spec}, {KEY: (64 << 20) // session.page_bytes(spec)}, 1)
    assert isinstance(store, ComposedStore)
    rows = session.array(np.ones((4, 8, 64), np.float32))
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    for number in range(3):
        index = session.array(np.arange(32).reshape(4, 8) + 512 * number)
        store.write("kv", index, (rows, rows))
        session.finish()
    assert mx.get_peak_memory() - before < 16 << 20
    assert store.export_page(KEY, 2)["kv/0"].sum() == rows.size


# ---- threads -------------------------------------------------------------------------------------------------


def test_a_model_that_one_thread_loaded_runs_on_another() -> None:
    """MLX's promises belong to a stream and its streams to threads; the session's belongs to all, one at a time."""
    runner = fake_runner(opened())
    tokens = tuple(range(2, 40))

    def run(into: list[NDArray[np.float32]]) -> None:
        slot = runner.acquire()
        assert slot is not None
        runner.forward([Segment(slot, tokens[:20], 0, want="none", kind="chunk")])
        runner.commit(slot, 20)
        output = runner.forward([Segment(slot, tokens[20:25], 20, want="all")])
        into.append(runner.logits(output, range(5)))
        runner.commit(slot, 22)
        snapshot = runner.snapshot(slot)
        runner.restore(slot, snapshot)
        runner.drop(snapshot)
        runner.release(slot)

    here: list[NDArray[np.float32]] = []
    run(here)
    for _ in range(2):
        thread = threading.Thread(target=run, args=(here,))
        thread.start()
        thread.join()
    assert len(here) == 3
    assert here[0].tobytes() == here[1].tobytes() == here[2].tobytes()


def test_a_captured_decoder_has_its_rows_computed_with_its_states() -> None:
    """One wait a step: what `forward` gave is there when `finish` returns."""
    session = opened()
    assert isinstance(session, CanCapture)
    runner = fake_runner(session)
    slot = runner.acquire()
    assert slot is not None
    output = runner.forward([Segment(slot, (3, 4, 5), 0, want="all")])
    before = mx.get_active_memory()
    np.asarray(output.picked)
    assert mx.get_active_memory() <= before


def test_a_step_waits_for_nothing_before_it_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunk and rows, with experts, an indexer, recurrences and a draft head: no look at a value, no wait, on the way."""
    session = opened()
    runner = fake_runner(session)
    slot = runner.acquire()
    assert slot is not None
    looked: list[str] = []

    def watched(name: str, function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            looked.append(name)
            return function(*arguments, **named)

        return call

    monkeypatch.setattr(MlxPrimitives, "numpy", watched("numpy", MlxPrimitives.numpy))
    monkeypatch.setattr(mx, "eval", watched("eval", mx.eval))
    steps: tuple[tuple[Kind, range], ...] = (("chunk", range(2, 72)), ("rows", range(3, 8)))
    start = 0
    for kind, chosen in steps:
        tokens = tuple(chosen)
        looked.clear()
        output = runner.forward([Segment(slot, tokens, start, want="all", kind=kind)])
        assert looked == ["eval"]
        runner.commit(slot, start + len(tokens))
        runner.draft([Segment(slot, tokens, start, want="all")], [HiddenRows(output, 0, len(tokens))])
        assert looked == ["eval", "eval"]
        runner.commit(slot, start + len(tokens), "draft")
        start += len(tokens)


# ---- what goes in and comes out ------------------------------------------------------------------------------


def test_an_array_of_a_mapped_file_is_taken_without_complaint() -> None:
    """Read-only memory, as files are mapped, is copied."""
    values = np.ones((3, 3), np.float32)
    values.flags.writeable = False
    assert np.array_equal(opened().numpy(opened().array(values)), values)


def test_a_broken_row_leaves_nothing_for_its_neighbours() -> None:
    """NaN in one row of a product reaches no other row."""
    session = opened()
    ops = session.ops("rows", session.store({}, {}, 1), {})
    matrix = session.packer.linear([Dense(np.ones((3, 48), np.float32), "f32")], [None])
    broken = np.full((8, 48), np.nan, np.float32)
    broken[0] = 1.0
    assert session.numpy(ops.linear(session.array(broken), matrix))[0].tolist() == [48.0] * 3
