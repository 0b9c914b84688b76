"""Rotary position embedding from a config, in either of its spellings, with the scaling rules of transformers.

Sources: transformers' `modeling_rope_utils`; the papers are named at each rule. A rule gives frequencies that hold for
every position, so that a key's rotation never depends on how long its sequence became.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.contracts.handles import Rope
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["context_window", "divided", "rope_of"]

Frequencies: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a rule reads."""

    config: ModelConfig
    parameters: ModelConfig
    """The `rope_parameters` or `rope_scaling` section."""
    theta: float
    head_dim: int

    @property
    def dim(self) -> int:
        """Rotated dimensions of a head."""
        return int(self.head_dim * _partial(self.config, self.parameters))

    @property
    def even_dim(self) -> int:
        """The same, for rules that say something of every pair."""
        if self.dim % 2:
            raise CheckpointUnsupported(
                f"{self.config.where}: {self.parameters.path}rope_type rotates {self.dim} of a head's {self.head_dim}"
                " dimensions (partial_rotary_factor), and must rotate an even number"
            )
        return self.dim

    @property
    def window(self) -> int:
        return self.config.positive("max_position_embeddings")

    @property
    def original_window(self) -> int:
        """Positions of the pretraining. A key beside the section counts before the one in it."""
        for where in (self.config, self.parameters):
            if where.get(int, "original_max_position_embeddings", None) is not None:
                return where.positive("original_max_position_embeddings")
        return self.window

    def factor(self, default: float | None = None) -> float:
        factor = self.parameters.get(float, "factor", default)
        if factor is None:
            raise CheckpointUnsupported(f"{self.config.where} has no {self.parameters.path}factor")
        return self._above_zero("factor", factor)

    def turns(self, key: str, default: float) -> float:
        """How often a pair turns within the original window; 0 asks for the default."""
        return self._above_zero(key, self.parameters.get(float, key, None) or default)

    def _above_zero(self, key: str, value: float) -> float:
        if not value > 0:
            raise CheckpointUnsupported(
                f"{self.config.where}: {self.parameters.path}{key} is {value}, and must be above 0"
            )
        return value

    def factors(self, key: str) -> Frequencies:
        """A list of one factor a pair."""
        values: Any = self.parameters.values.get(key)
        listed = cast("list[Any]", values) if isinstance(values, list) else []
        pairs = self.even_dim // 2
        if len(listed) != pairs or not all(_is_factor(each) for each in listed):
            raise CheckpointUnsupported(
                f"{self.config.where}: {self.parameters.path}{key} must be a list of {pairs} numbers above 0"
            )
        return np.asarray(listed, np.float32)


def rope_of(config: ModelConfig, head_dim: int, *, layer_type: str | None = None, interleaved: bool = False) -> Rope:
    """The rotation that a config asks for.

    Args:
        config: holds `rope_parameters`, or `rope_theta` and `rope_scaling`.
        head_dim: width of a head.
        layer_type: the entry of a `rope_parameters` that has one for each type of layer.
        interleaved: pairs lie side by side.

    Raises:
        CheckpointUnsupported: a rule that is not known, by its name, or one whose numbers are missing.
    """
    parameters = _parameters(config, layer_type)
    kind = _kind(parameters)
    rule = _RULES.get(kind)
    if rule is None:
        raise CheckpointUnsupported(
            f"{config.where}: {parameters.path}rope_type is {kind!r}, and only {', '.join(_RULES)} are run"
        )
    theta = parameters.get(float, "rope_theta", None) or config.get(float, "rope_theta", None) or 10000.0
    if not (math.isfinite(theta) and theta > 1):
        raise CheckpointUnsupported(f"{config.where}: rope_theta is {theta}, and must be above 1")
    frequencies, scale = rule(_Asked(config, parameters, theta, head_dim))
    return Rope(tuple(frequencies.tolist()), interleaved=interleaved, scale=scale)


def divided(rope: Rope, factors: NDArray[np.float32]) -> Rope:
    """Every frequency divided by its factor, as GGUF files store a rule (`rope_freqs`)."""
    frequencies = np.asarray(rope.inv_freq, np.float32) / factors
    return replace(rope, inv_freq=tuple(frequencies.tolist()))


def context_window(config: ModelConfig) -> int:
    """The longest sequence that the checkpoint was made for: YaRN names the length that it stretches."""
    window = config.positive("max_position_embeddings")
    parameters = _parameters(config, None)
    original = parameters.get(int, "original_max_position_embeddings", None)
    if _kind(parameters) == "yarn" and original is not None:
        window = max(window, int(original * (parameters.get(float, "factor", None) or 1.0)))
    return window


def _parameters(config: ModelConfig, layer_type: str | None) -> ModelConfig:
    empty = ModelConfig(MappingProxyType({}), config.generation, config.where, f"{config.path}rope_parameters.")
    sections = (config.section("rope_scaling"), config.section("rope_parameters"))
    section = next((each for each in sections if each is not None and each.values), empty)
    if layer_type is not None and layer_type in section.values:
        return section.section(layer_type) or empty
    return section


def _kind(parameters: ModelConfig) -> str:
    kind = parameters.get(str, "rope_type", None) or parameters.get(str, "type", None)
    if kind is None and parameters.get(float, "factor", None) is not None:
        raise CheckpointUnsupported(f"{parameters.where}: {parameters.path}factor is given, and no rope_type with it")
    return "default" if kind in (None, "none") else kind  # GGUF says none


def _is_factor(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _partial(config: ModelConfig, parameters: ModelConfig) -> float:
    for where in (parameters, config):
        part = where.get(float, "partial_rotary_factor", None)
        if part is None:
            continue
        if not 0 <= part <= 1:
            raise CheckpointUnsupported(
                f"{config.where}: {where.path}partial_rotary_factor is {part}, and must be from 0 to 1"
            )
        return part
    return 1.0


# ---- rules: to one frequency a pair, and the factor of cosine and sine --------------------------------------


def _powers(theta: float, dim: int, over: int | None = None) -> Frequencies:
    """theta ** (2i / over) for the pairs of dim. The exponent is rounded to f32, as everywhere; the power is exact."""
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(over or dim)
    return np.power(np.float64(theta), exponents.astype(np.float64)).astype(np.float32)


def _default(asked: _Asked) -> tuple[Frequencies, float]:
    return np.float32(1.0) / _powers(asked.theta, asked.dim), 1.0


def _linear(asked: _Asked) -> tuple[Frequencies, float]:
    """Position interpolation (arXiv 2306.15595)."""
    return _default(asked)[0] / np.float32(asked.factor()), 1.0


def _dynamic(asked: _Asked) -> tuple[Frequencies, float]:
    """Dynamic NTK: the base grows with a sequence that is longer than the window, which none here becomes."""
    asked.factor()
    return _default(asked)


def _proportional(asked: _Asked) -> tuple[Frequencies, float]:
    """The first pairs turn as if all did; the others stand still."""
    turning = int(_partial(asked.config, asked.parameters) * asked.head_dim // 2)
    frequencies = np.zeros(asked.head_dim // 2, np.float32)
    frequencies[:turning] = np.float32(1.0) / _powers(asked.theta, 2 * turning, asked.head_dim)
    return frequencies / np.float32(asked.factor(1.0)), 1.0


def _llama3(asked: _Asked) -> tuple[Frequencies, float]:
    """Llama 3.1: long waves are stretched, short ones kept, those between blended."""
    frequencies = _default(asked)[0]
    factor, original = np.float32(asked.factor()), asked.original_window
    low, high = asked.parameters.get(float, "low_freq_factor"), asked.parameters.get(float, "high_freq_factor")
    if not 0 < low < high < math.inf:
        raise CheckpointUnsupported(
            f"{asked.config.where}: {asked.parameters.path}low_freq_factor is {low} and high_freq_factor {high},"
            " and the first must be above 0 and below the second"
        )
    waves = np.float32(2 * math.pi) / frequencies
    smooth = (np.float32(original) / waves - np.float32(low)) / np.float32(high - low)
    blended = (1 - smooth) * frequencies / factor + smooth * frequencies
    stretched = np.where(waves > np.float32(original / low), frequencies / factor, frequencies)
    between = (waves >= np.float32(original / high)) & (waves <= np.float32(original / low))
    return np.where(between, blended, stretched).astype(np.float32), 1.0


def _yarn(asked: _Asked) -> tuple[Frequencies, float]:
    """YaRN (arXiv 2309.00071): interpolated and kept frequencies, blended along a ramp over the pairs."""
    parameters, dim, original = asked.parameters, asked.even_dim, asked.original_window
    factor = asked.factor(asked.window / original)

    def turns_at(rotations: float) -> float:
        """The dimension whose pair turns so often within the original window."""
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(asked.theta))

    first, last = turns_at(asked.turns("beta_fast", 32.0)), turns_at(asked.turns("beta_slow", 1.0))
    if parameters.get(bool, "truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dim - 1)
    if first == last:
        last += 0.001  # a step instead of a division by zero
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - np.float32(first)) / np.float32(last - first), 0, 1)
    powers = _powers(asked.theta, dim)
    kept = 1 - ramp
    frequencies = (1 / (np.float32(factor) * powers)) * (1 - kept) + (1 / powers) * kept
    return frequencies.astype(np.float32), _yarn_scale(parameters, factor)


def _yarn_scale(parameters: ModelConfig, factor: float) -> float:
    given = parameters.get(float, "attention_factor", None)
    if given is not None:
        return given

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    mscale, all_dim = parameters.get(float, "mscale", None), parameters.get(float, "mscale_all_dim", None)
    return scale(mscale) / scale(all_dim) if mscale and all_dim else scale(1.0)


def _longrope(asked: _Asked) -> tuple[Frequencies, float]:
    """LongRoPE (arXiv 2402.13753), with its long factors when the window is longer than the pretraining's.

    transformers changes from short to long factors when a sequence outgrows the original window, and then reads keys
    that were turned by the short ones; here a model has one set.
    """
    original = asked.original_window
    if original < 2:
        raise CheckpointUnsupported(
            f"{asked.config.where}: original_max_position_embeddings is {original}, and must be at least 2"
        )
    factor = asked.factor(asked.window / original)
    given = asked.parameters.get(float, "attention_factor", None)
    scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    stretch = asked.factors("long_factor" if asked.window > original else "short_factor")
    return np.float32(1.0) / (stretch * _powers(asked.theta, asked.dim)), scale if given is None else given


_RULES: Mapping[str, Callable[[_Asked], tuple[Frequencies, float]]] = MappingProxyType(
    {
        "default": _default,
        "linear": _linear,
        "dynamic": _dynamic,
        "llama3": _llama3,
        "yarn": _yarn,
        "longrope": _longrope,
        "proportional": _proportional,
    }
)
