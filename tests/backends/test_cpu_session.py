"""The cpu backend as the server meets it: what it is opened with, and what it says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tensorfold.compute.host import usable_processors
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.states import KV, TableKey
from tensorfold.contracts.tensors import Dense
from tensorfold.errors import BackendError, ConfigError, PluginUnavailable
from tensorfold.testing.reference import ReferenceBackend
from tensorfold_backend_cpu import CpuBackend, tensorfold_backends, tensorfold_commands
from tensorfold_backend_cpu.kernels.cache import folder
from tensorfold_backend_cpu.kernels.levels import choose


def test_the_plugin_answers_without_importing_numba() -> None:
    """Asking which backends there are, and whether they suit, costs no seconds."""
    code = (
        "import sys\n"
        "from tensorfold_backend_cpu import tensorfold_backends\n"
        "[backend] = tensorfold_backends()\n"
        "assert backend.name == 'cpu' and backend.probe().score == 10\n"
        "assert not {'numba', 'llvmlite', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_session_needs_no_torch() -> None:
    """Serving on plain processors imports neither torch nor transformers."""
    code = (
        "import sys\n"
        "from tensorfold.contracts.backend import BackendSettings\n"
        "from tensorfold_backend_cpu import CpuBackend\n"
        "CpuBackend().open(BackendSettings(threads=1)).close()\n"
        "assert not {'torch', 'transformers', 'scipy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_without_numba_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither probing nor opening fails with an import error."""
    found = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "numba" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    for ask in (CpuBackend().probe, lambda: CpuBackend().open(BackendSettings())):
        with pytest.raises(PluginUnavailable, match="pip install numba"):
            ask()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (BackendSettings(device="cuda"), "device is 'cuda'"),
        (BackendSettings(dtype="bfloat16"), "dtype is 'bfloat16'"),
        (BackendSettings(threads=0), "threads is 0"),
        (BackendSettings(weights="int3"), "weights is 'int3'.*auto, int8, int4, exact"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(settings: BackendSettings, said: str) -> None:
    """The message names the value and the rule."""
    with pytest.raises(ConfigError, match=said):
        CpuBackend().open(settings)


def test_the_device_names_threads_kernels_and_weights() -> None:
    """What the start-up block shows; by default as many threads as the process may use."""
    session = CpuBackend().open(BackendSettings(threads=3, weights="int4"))
    assert "3 threads" in session.device and "weights int4" in session.device
    session.close()
    session = CpuBackend().open(BackendSettings())
    assert f"{usable_processors()} thread" in session.device
    session.close()


def test_numerics_tell_treatments_of_weights_apart() -> None:
    """A snapshot of one is no snapshot of another."""
    sessions = [CpuBackend().open(BackendSettings(threads=1, weights=mode)) for mode in ("auto", "int4", "exact")]
    assert len({session.numerics for session in sessions}) == 3
    for session in sessions:
        session.close()


def test_a_large_model_has_shorter_chunks() -> None:
    """The chunk follows from the weights, so that running replies wait no longer beside a large model."""
    session = CpuBackend().open(BackendSettings(threads=1))
    assert session.chunk == 512
    session.packer.products = 7_000_000_000
    assert session.chunk == 64
    session.close()


def test_a_state_of_another_kind_is_refused() -> None:
    """Attention over a state that is not declared, and a weight of another backend, are named."""
    session = CpuBackend().open(BackendSettings(threads=1))
    store = session.store({"kv": KV(1, 4, 4)}, {TableKey("main", None): 2}, 1)
    ops = session.ops("rows", store, {})
    with pytest.raises(BackendError, match="'other' is not declared"):
        store.pool("other")  # type: ignore[attr-defined]
    foreign = (
        ReferenceBackend().open(BackendSettings()).packer.linear([Dense(np.ones((4, 4), np.float32), "f32")], [None])
    )
    with pytest.raises(BackendError, match="DenseLinear"):
        ops.linear(session.array(np.ones((1, 4), np.float32)), foreign)
    session.close()


def test_levels_are_chosen_by_features() -> None:
    """The best that the processor has; a named one only if it can be run."""
    zen3 = {"avx2": True, "fma": True, "f16c": True}
    zen5 = {**zen3, "avx512vnni": True, "avx512bw": True, "avx512vl": True, "avxvnni": True}
    assert choose({}, None) == "plain"
    assert choose(zen3, None) == "avx2"
    assert choose(zen5, None) == "avx512vnni"
    assert choose(zen5, "avx2") == "avx2"
    assert choose({"dotprod": True}, None) == "dotprod"
    with pytest.raises(ConfigError, match="can only run avx2, plain"):
        choose(zen3, "avx512vnni")
    with pytest.raises(ConfigError, match="must be one of"):
        choose(zen3, "sse")


def test_kernels_are_kept_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An installation that cannot be written to compiles once, too; other kernels have another folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = folder()
    monkeypatch.setenv("TENSORFOLD_CPU_KERNELS", "plain")
    assert first != folder()
    assert sys.platform != "linux" or tmp_path in first.parents


def test_one_backend_is_offered() -> None:
    """Under the name that `--backend` takes."""
    assert [each.name for each in tensorfold_backends()] == ["cpu"]


@pytest.mark.slow
def test_the_kernels_command_puts_every_kernel_beside_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits first; no figure is zero or not a number where one is said."""
    monkeypatch.setattr("tensorfold_backend_cpu.measuring._SAMPLES", 1)
    [command] = tensorfold_commands()
    done = CliRunner().invoke(command.command, ["--threads", "2", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [each["name"].split(":")[0] for each in found[:3]] == ["limit"] * 3
    assert len(found) > 10 and all(each["share"] > 0 for each in found)
