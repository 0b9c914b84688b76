"""Memory and processors are those that limits leave, not those that the machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tensorfold.compute.host import host_memory, quiet_threads, usable_processors

MIB = 1 << 20


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    """A file system in which the machine has 1000 MiB, 800 of them available, and these control groups."""
    files = {
        "proc/meminfo": f"MemTotal: {1000 * 1024} kB\nMemFree: 1 kB\nMemAvailable: {800 * 1024} kB\n",
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_limits_the_machine_is_the_measure(tmp_path: Path) -> None:
    """No group, or a group without a limit, leaves what the machine has."""
    root = machine(tmp_path, "0::/app\n", {"app/memory.max": "max", "memory.current": "5"})
    assert (host_memory(root).total, host_memory(root).available) == (1000 * MIB, 800 * MIB)


def test_the_innermost_limit_counts(tmp_path: Path) -> None:
    """A group's limit, less what it uses, plus what the kernel gives back first."""
    files = {
        "a/memory.max": str(900 * MIB),
        "a/b/memory.max": str(300 * MIB),
        "a/b/memory.current": str(250 * MIB),
        "a/b/memory.stat": f"anon 7\ninactive_file {40 * MIB}\n",
    }
    memory = host_memory(machine(tmp_path, "0::/a/b\n", files))
    assert (memory.total, memory.available) == (300 * MIB, 90 * MIB)


def test_an_outer_limit_counts_too(tmp_path: Path) -> None:
    """A group inside a smaller one has no more than that."""
    files = {"a/memory.max": str(100 * MIB), "a/memory.current": str(60 * MIB), "a/b/memory.max": str(300 * MIB)}
    memory = host_memory(machine(tmp_path, "0::/a/b\n", files))
    assert (memory.total, memory.available) == (100 * MIB, 40 * MIB)


def test_limits_of_version_1_count(tmp_path: Path) -> None:
    """Older systems keep a folder for each controller, and a container sees its own at the mount."""
    files = {"memory/memory.limit_in_bytes": str(200 * MIB), "memory/memory.usage_in_bytes": str(50 * MIB)}
    memory = host_memory(machine(tmp_path, "4:memory:/docker/abc\n3:cpuset:/\n", files))
    assert (memory.total, memory.available) == (200 * MIB, 150 * MIB)


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    """Available memory is never negative."""
    files = {"memory.max": str(100 * MIB), "memory.current": str(120 * MIB)}
    assert host_memory(machine(tmp_path, "0::/\n", files)).available == 0


@pytest.mark.parametrize(
    ("files", "processors"),
    [
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, len(os.sched_getaffinity(0))),
        ({}, len(os.sched_getaffinity(0))),
    ],
)
def test_processors_follow_the_quota(tmp_path: Path, files: dict[str, str], processors: int) -> None:
    """A quota of one processor's time is one processor, whatever the machine has."""
    assert usable_processors(machine(tmp_path, "0::/\n", files)) == processors


def test_what_the_environment_says_about_threads_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting threads sleep soon, unless somebody decided otherwise."""
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setenv("KMP_BLOCKTIME", "100")
    quiet_threads()
    assert int(os.environ["GOMP_SPINCOUNT"]) > 0
    assert os.environ["KMP_BLOCKTIME"] == "100"
    monkeypatch.delenv("GOMP_SPINCOUNT")
