"""Which instructions the kernels are made of: chosen once, from what the processor has.

Every level computes the same bits: products of 8-bit integers are exact, and floating-point work is written lane by
lane in one order. A level is a matter of speed alone.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias, cast, get_args

from tensorfold.errors import ConfigError
from tensorfold_backend_cpu.kernels.untyped import binding, config

__all__ = ["LEVEL", "Level", "choose"]

Level: TypeAlias = Literal["avx512vnni", "avxvnni", "avx2", "dotprod", "plain"]

VARIABLE: Final = "TENSORFOLD_CPU_KERNELS"
"""The environment variable that names a level instead, for comparisons."""

_NEEDED: Final[Mapping[Level, tuple[str, ...]]] = {
    "avx512vnni": ("avx512vnni", "avx512bw", "avx512vl", "fma", "f16c"),
    "avxvnni": ("avxvnni", "avx2", "fma", "f16c"),
    "avx2": ("avx2", "fma", "f16c"),
    "dotprod": ("dotprod",),
    "plain": (),
}
"""Processor features, in LLVM's names, that a level uses; the best level comes first."""


def choose(features: Mapping[str, bool], named: str | None) -> Level:
    """The best level of a processor, or the one named.

    Raises:
        ConfigError: no such level, or the processor lacks what it needs.
    """
    usable: list[Level] = [
        level for level, needed in _NEEDED.items() if all(features.get(each, False) for each in needed)
    ]
    if named is None:
        return usable[0]
    if named not in get_args(Level):
        raise ConfigError(f"{VARIABLE} is {named!r}, and must be one of {', '.join(get_args(Level))}")
    level = cast("Level", named)
    if level not in usable:
        raise ConfigError(f"{VARIABLE} is {named!r}, and this processor can only run {', '.join(usable)}")
    return level


def _features() -> Mapping[str, bool]:
    """Of the processor that numba compiles for: this one, or what its own variables name in its place."""
    if config.CPU_NAME:
        named = str(config.CPU_FEATURES or "").split(",")
        return {each[1:]: each[0] == "+" for each in named if each}
    features: dict[str, bool] = dict(binding.get_host_cpu_features())
    # Apple's processors all have it, and LLVM reads features of arm64 on Linux alone.
    if platform.system() == "Darwin" and platform.machine() == "arm64":
        features["dotprod"] = True
    return features


LEVEL: Final[Level] = choose(_features(), os.environ.get(VARIABLE))
"""That of this process."""
