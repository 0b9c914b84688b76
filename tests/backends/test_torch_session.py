"""The torch backend as the server meets it: what it is opened with, what it says, what it does without torch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensorfold.contracts.backend import BackendSettings, CanCapture, Session
from tensorfold.contracts.states import KV, TableKey
from tensorfold.contracts.step import Kind
from tensorfold.contracts.tensors import Dense
from tensorfold.errors import BackendError, ConfigError, PluginUnavailable
from tensorfold_backend_torch import TorchBackend, tensorfold_backends

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

CPU = BackendSettings(device="cpu", threads=1)


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def opened(settings: BackendSettings = CPU) -> Session[Any]:
    """A session on the CPU."""
    return TorchBackend().open(settings)


def test_the_plugin_answers_without_importing_torch() -> None:
    """Asking which backends there are, and whether they suit a machine without a GPU, costs no seconds."""
    code = (
        "import sys, pathlib\n"
        "import tensorfold_backend_torch as plugin\n"
        "import tensorfold_backend_torch.probe as probe\n"
        "probe._DRIVERS = ()\n"
        "[backend] = plugin.tensorfold_backends()\n"
        "assert backend.name == 'torch' and 0 < backend.probe().score < 10\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_torch_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither probing nor opening fails with an import error."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    [backend] = tensorfold_backends()
    with pytest.raises(PluginUnavailable, match=r"pip install 'tensorfold\[torch\]'"):
        backend.probe()
    with pytest.raises(PluginUnavailable, match="needs torch"):
        backend.open(CPU)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (BackendSettings(device="tpu"), "'tpu', and the torch backend runs on cpu, cuda or cuda:NUMBER"),
        (BackendSettings(device="cuda:x"), "'cuda:x'"),
        (BackendSettings(device="cpu", dtype="int8"), "'int8', and the torch backend computes in"),
        (BackendSettings(device="cpu", dtype="float16"), "on a CPU the torch backend computes in float32 or bfloat16"),
        (BackendSettings(device="cpu", threads=0), "threads is 0"),
    ],
)
def test_a_setting_that_cannot_be_given_is_declined_by_name(settings: BackendSettings, message: str) -> None:
    """The value, the rule and what there is instead."""
    with pytest.raises(ConfigError, match=message):
        opened(settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_declined() -> None:
    """Nobody is served by the CPU who asked for a GPU."""
    with pytest.raises(ConfigError, match="finds no GPU: use --device cpu"):
        opened(BackendSettings(device="cuda"))


def test_a_cpu_computes_in_float32_unless_told_otherwise() -> None:
    """Whatever the checkpoint is stored in; bfloat16 products are slow or emulated on most CPUs."""
    assert opened(BackendSettings(device="cpu", threads=1, checkpoint_dtype="bfloat16")).dtype == "float32"
    assert opened(BackendSettings(device="cpu", threads=1, dtype="bfloat16")).dtype == "bfloat16"


def test_the_numerics_name_what_decides_bits() -> None:
    """Snapshots of another torch, CPU kind or type do not fit."""
    numerics = opened().numerics
    assert torch.__version__ in numerics and torch.backends.cpu.get_cpu_capability() in numerics
    assert numerics != opened(BackendSettings(device="cpu", threads=1, dtype="bfloat16")).numerics


def test_states_take_half_the_memory_in_bfloat16() -> None:
    """Keys and values are kept in the type of activations."""
    spec = KV(2, 16, 16)
    wide = opened().page_bytes(spec)
    assert wide == 64 * 2 * 32 * 4
    assert opened(BackendSettings(device="cpu", threads=1, dtype="bfloat16")).page_bytes(spec) == wide // 2


def test_large_pools_take_memory_when_they_are_written() -> None:
    """A pool for a long window starts at once, and takes what its pages take."""
    spec, key = KV(8, 128, 128), TableKey("main", None)
    pages = (1 << 30) // opened().page_bytes(spec)
    before = resident()
    store = opened().store({"kv": spec}, {key: pages}, 1)
    assert store.bytes == 1 << 30
    assert not store.export_page(key, pages - 1)["kv/0"].any()
    assert resident() - before < 1 << 28


def test_pools_that_the_machine_cannot_hold_are_refused_with_their_size() -> None:
    """An allocation that fails is no crash."""
    with pytest.raises(BackendError, match=r"the states need [\d,]{16,} bytes"):
        opened().store({"kv": KV(8, 128, 128)}, {TableKey("main", None): 1 << 32}, 1)


def test_a_captured_decoder_runs_in_inference_mode() -> None:
    """Also on a thread that never asked for it, and only for as long as it runs."""

    class Asked:
        draft = None
        asked: bool | None = None

        def prepare(self, step: Any) -> dict[str, Any]:
            return {}

        def forward(self, ops: Any, step: Any) -> Any:
            self.asked = torch.is_inference_mode_enabled()

        def logits(self, ops: Any, hidden: Any) -> Any:
            self.asked = torch.is_inference_mode_enabled()

    session, decoder = opened(), Asked()
    assert isinstance(session, CanCapture)
    captured = session.capture(decoder)
    for call in (captured.forward, captured.logits):
        decoder.asked = None
        call(None, None)  # type: ignore[arg-type]
        assert decoder.asked
    assert not torch.is_inference_mode_enabled()


def test_an_array_of_a_mapped_file_is_taken_without_complaint() -> None:
    """Read-only memory, as files are mapped, is copied."""
    values = np.ones((3, 3), np.float32)
    values.flags.writeable = False
    assert np.array_equal(opened().numpy(opened().array(values)), values)


def test_a_broken_row_leaves_nothing_for_the_next_call() -> None:
    """NaN in one row of one matrix reaches no other row, and no later product of another width."""
    session = opened()
    ops = session.ops("rows", session.store({}, {}, 1), {})
    narrow, wide = (
        session.packer.linear([Dense(np.ones((3, columns), np.float32), "f32")], [None]) for columns in (33, 48)
    )
    broken = np.full((8, 48), np.nan, np.float32)
    broken[0] = 1.0
    assert session.numpy(ops.linear(session.array(broken), wide))[0].tolist() == [48.0] * 3
    ones = session.array(np.ones((1, 33), np.float32))
    assert session.numpy(ops.linear(ones, narrow)).tolist() == [[33.0] * 3]


@pytest.mark.parametrize("kind", ["rows", "chunk"])
def test_logits_of_a_router_are_not_rounded_in_bfloat16(kind: Kind) -> None:
    """Two experts whose logits differ by less than a bfloat16 step stay apart, at every number of rows."""
    session = opened(BackendSettings(device="cpu", threads=1, dtype="bfloat16"))
    ops = session.ops(kind, session.store({}, {}, 1), {})
    matrix = np.ones((3, 8), np.float32)
    matrix[1, 0] = 1 + 2**-7
    gate = session.packer.linear([Dense(matrix, "f32")], [Dense(np.array([0.5, 0.5, -2.0], np.float32), "f32")])
    for rows in (1, 3, 11):
        x = torch.full((rows, 8), 32.0).to(torch.bfloat16)
        logits = ops.linear(x, gate, wide=True)
        assert logits.dtype == torch.float32
        assert logits.tolist() == [[256.5, 256.75, 254.0]] * rows
        narrow = ops.linear(x, gate)
        assert narrow.dtype == torch.bfloat16 and narrow[0, 0] == narrow[0, 1]


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_a_pair_has_the_bits_that_it_has_alone_with_any_number_of_threads(threads: int) -> None:
    """One key head on one page is a single product, which threads would share; beside others it is one of many."""
    from tensorfold_backend_torch.primitives import TorchPrimitives

    before = torch.get_num_threads()
    primitives = TorchPrimitives(torch.device("cpu"), torch.float32)
    dice = torch.Generator().manual_seed(3)
    try:
        torch.set_num_threads(threads)
        for rows in range(1, 17):
            a = torch.randn(9, rows, 16, generator=dice)
            for b, transposed in (
                (torch.randn(9, 64, 16, generator=dice), True),
                (torch.randn(9, 16, 64, generator=dice), False),
            ):
                together = primitives.pairs(a, b, transposed=transposed)
                for pair in range(9):
                    alone = primitives.pairs(a[pair : pair + 1], b[pair : pair + 1], transposed=transposed)
                    assert torch.equal(alone[0], together[pair]), f"{rows} rows"
    finally:
        torch.set_num_threads(before)
