"""What of this machine the process may use: memory and processors, as far as limits and affinity leave them.

Read from the kernel's files, so that no further package is needed; `root` stands in for `/` in tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tensorfold.contracts.backend import DeviceMemory

__all__ = ["host_memory", "quiet_threads", "usable_processors"]

_ROOT = Path("/")


def quiet_threads() -> None:
    """Let helper threads of OpenMP libraries sleep soon instead of spinning, unless the environment says otherwise.

    Read when such a library is loaded, so call it before numba or torch is imported. Threads that spin take the
    processors from each other and from their neighbours (measured: a step of 75 ms took 5 s beside one busy process).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")  # about 200 microseconds
    os.environ.setdefault("KMP_BLOCKTIME", "0")


def usable_processors(root: Path = _ROOT) -> int:
    """Processors that this process may run on, by its affinity and its control groups' quotas; at least 1."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # a system without affinity
        count = os.cpu_count() or 1
    for folder in _control_groups(root, "cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not period:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(period):
            count = min(count, round(int(quota) / int(period)))
    return max(1, count)


def host_memory(root: Path = _ROOT) -> DeviceMemory:
    """The machine's memory, or a control group's where that is smaller."""
    total, available = _machine_memory(root)
    for folder in _control_groups(root, "memory"):
        limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        if limit.isdigit():
            used = _read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes")
            left = int(limit) - int(used or 0) + _reclaimable(_read(folder / "memory.stat"))
            total = min(total, int(limit))
            available = min(available, max(0, left))
    return DeviceMemory(total, available)


def _machine_memory(root: Path) -> tuple[int, int]:
    """Bytes in all, and bytes that could be given without swapping."""
    fields: dict[str, int] = {}
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            fields[name] = int(words[0]) * 1024
    if "MemTotal" in fields:
        return fields["MemTotal"], fields.get("MemAvailable", fields["MemTotal"] // 2)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # Systems without /proc have no portable way to say what is free.
    return total, total // 2


def _control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control groups and of their ancestors, innermost first.

    Inside a container the group's own path may not exist under the mount; then the mount itself is its group.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, described = line.partition(":")
        controllers, _, path = described.partition(":")
        if controllers == "":  # version 2
            mount = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):  # version 1
            mount = root / "sys/fs/cgroup" / controller
        else:
            continue
        folder = mount / path.lstrip("/")
        while mount in folder.parents:
            yield folder
            folder = folder.parent
        yield mount


def _reclaimable(stat: str) -> int:
    """Page cache that the kernel gives back first."""
    for line in stat.splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdigit():
            return int(value)
    return 0


def _read(path: Path) -> str:
    """A small kernel file's text; empty when it is not there."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
