"""Where compiled kernels are kept: in the user's cache folder, apart for each version of their source and processor."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import platformdirs

__all__ = ["folder", "prepare"]

_VARIABLE = "NUMBA_CACHE_DIR"


def folder() -> Path:
    """The folder for this version of the kernels. numba itself tells processors and its own versions apart.

    numba looks at the file of the function alone that Python calls; the kernels inside it come from other files, so the
    name holds a digest of them all.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    # Instructions are chosen by this variable, too, and numba does not know of it.
    digest.update(os.environ.get("TENSORFOLD_CPU_KERNELS", "").encode())
    return Path(platformdirs.user_cache_dir("tensorfold", appauthor=False)) / "kernels" / digest.hexdigest()[:16]


def prepare() -> None:
    """Tell numba, before it is imported for the first time or after, unless the user has said where."""
    if _VARIABLE in os.environ:
        return
    from tensorfold_backend_cpu.kernels.untyped import config

    config.CACHE_DIR = str(folder())
