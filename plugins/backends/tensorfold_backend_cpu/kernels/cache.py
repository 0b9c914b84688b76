"""Where compiled kernels are kept: in the user's cache folder, apart for each version of their source.

numba tells processors and its own versions apart, but looks at the file of the function alone that it compiles, while the
kernels inside it come from other files, and it keeps one cache for each place where a package is installed. So it is told
our own rule: one folder for a digest of all sources, whoever installed them.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from tensorfold_backend_cpu.kernels.untyped import Locator, config

__all__ = ["KernelLocator", "folder", "prepare"]

_VARIABLE = "NUMBA_CACHE_DIR"
_HERE = Path(__file__).parent


def folder() -> Path:
    """The folder for this version of the kernels: in the user's cache, or where numba's own variable says."""
    digest = hashlib.sha256(_sources())
    # Instructions are chosen by this variable, too, and numba does not know of it.
    digest.update(os.environ.get("TENSORFOLD_CPU_KERNELS", "").encode())
    named = os.environ.get(_VARIABLE)
    whole = Path(named) if named else Path(platformdirs.user_cache_dir("tensorfold", appauthor=False)) / "kernels"
    return whole / digest.hexdigest()[:16]


@cache
def _sources() -> bytes:
    """A digest of the kernels' files."""
    digest = hashlib.sha256()
    for source in sorted(_HERE.glob("*.py")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.digest()


@cache
def _unkept() -> Path:
    """A folder of this process, where no other can be written to. It is not shared: what is in it is run."""
    return Path(tempfile.mkdtemp(prefix="tensorfold-kernels-"))


class KernelLocator(Locator):  # type: ignore[misc]
    """Tells numba where to keep a kernel, and by what to know a stale one."""

    def __init__(self, line: int, path: Path) -> None:
        self._line = line
        self._path = path

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> KernelLocator | None:
        """For functions of these files; others are not ours to place."""
        if Path(py_file).parent != _HERE:
            return None
        line = int(py_func.__code__.co_firstlineno)
        found = cls(line, folder())
        try:
            found.ensure_cache_path()
        except OSError:
            found = cls(line, _unkept())
        return found

    def get_cache_path(self) -> str:
        """The folder."""
        return str(self._path)

    def get_source_stamp(self) -> bytes:
        """What all kernels are compiled from."""
        return _sources()

    def get_disambiguator(self) -> str:
        """The line, for functions of one name."""
        return str(self._line)


def prepare() -> None:
    """Tell numba, before the first kernel is made. Functions of others are kept as if nothing was said."""
    ours = f"{__name__}.{KernelLocator.__name__}"
    before = config.CACHE_LOCATOR_CLASSES or (
        "UserProvidedCacheLocator,InTreeCacheLocator,UserWideCacheLocator,IPythonCacheLocator,ZipCacheLocator"
    )
    if ours not in before:
        config.CACHE_LOCATOR_CLASSES = f"{ours},{before}"
