"""Between which bounds a Mamba step is kept.

`time_step_limit` is the bound; `time_step_min` and `time_step_max` are the range from which training drew the first
biases, and bound nothing afterwards. transformers cuts at `time_step_min` when it computes a chunk, and not when it
computes one token, so that its prompts and its replies disagree where steps are small.
"""

from __future__ import annotations

import math
from typing import Any, Final, cast

from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import CheckpointUnsupported

__all__ = ["step_limits"]

_INFINITY: Final = {"__float__": "Infinity"}
"""How transformers writes what JSON has no number for."""


def step_limits(config: ModelConfig) -> tuple[float, float]:
    """The lowest and the highest step.

    Raises:
        CheckpointUnsupported: `time_step_limit` is no pair of bounds.
    """
    key = "mamba_dt_limit" if config.values.get("mamba_dt_limit") is not None else "time_step_limit"
    value: Any = config.values.get(key)
    if value is None:
        return 0.0, math.inf
    pair = cast("list[Any]", value) if isinstance(value, list) else []
    bounds = [math.inf if bound == _INFINITY else bound for bound in pair]
    if (
        len(bounds) != 2
        or not all(isinstance(bound, int | float) for bound in bounds)
        or not 0 <= bounds[0] < bounds[1]
    ):
        raise CheckpointUnsupported(f"{config.where}: {key} is {value!r}, and must be a lower and a higher bound")
    return float(bounds[0]), float(bounds[1])
