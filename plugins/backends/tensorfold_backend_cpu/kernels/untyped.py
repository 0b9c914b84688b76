"""The parts of numba and llvmlite that have no types, named once."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

__all__ = ["Locator", "binding", "cgutils", "config", "ir", "register_model"]

ir: Final[Any] = import_module("llvmlite.ir")
"""Builds LLVM's intermediate representation."""
binding: Final[Any] = import_module("llvmlite.binding")
"""LLVM itself."""
cgutils: Final[Any] = import_module("numba.core.cgutils")
"""Helpers for building."""
register_model: Final[Any] = import_module("numba.extending").register_model
Locator: Final[Any] = import_module("numba.core.caching")._CacheLocator
"""The base of what says where compiled functions are kept; `NUMBA_CACHE_LOCATOR_CLASSES` is its documented use."""
config: Final[Any] = import_module("numba").config
"""numba's settings."""
