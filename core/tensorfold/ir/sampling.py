"""How tokens are drawn."""

from __future__ import annotations

import math

import msgspec

from tensorfold.errors import InvalidRequest

__all__ = ["Sampling"]


class Sampling(msgspec.Struct, frozen=True):
    """How tokens are drawn. None everywhere: the server's default, then the checkpoint's."""

    temperature: float | None = None
    """0 is greedy."""
    top_p: float | None = None
    """The smallest nucleus of at least this probability; 1 is off."""
    top_k: int | None = None
    """How many of the likeliest stay; 0 is off."""
    min_p: float | None = None
    """What stays must be at least this share of the likeliest; filters last; 0 is off."""
    seed: int | None = None
    """The sampling key; None: derived from the prompt's ids."""
    presence_penalty: float | None = None
    """Taken off every logit whose token has occurred."""
    frequency_penalty: float | None = None
    """Taken off as often as the token has occurred."""
    repetition_penalty: float | None = None
    """Divides positive and multiplies negative logits of tokens that have occurred; 1 is off."""
    logit_bias: tuple[tuple[int, float], ...] = ()
    """(token id, added to its logit), ids distinct."""

    def __post_init__(self) -> None:
        for name, low, high in _BOUNDS:
            value: float | None = getattr(self, name)
            if value is None:
                continue
            if not math.isfinite(value):
                raise InvalidRequest(f"{name} is {value}, and must be finite", param=name)
            if not low <= value <= high:
                span = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
                raise InvalidRequest(f"{name} is {value}, and must be {span}", param=name)
        for token, bias in self.logit_bias:
            if token < 0 or not math.isfinite(bias) or abs(bias) > 100:
                raise InvalidRequest(
                    f"logit_bias of token {token} is {bias}: ids are not negative, biases from -100 to 100",
                    param="logit_bias",
                )


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("temperature", 0.0, 100.0),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -100.0, 100.0),
    ("frequency_penalty", -100.0, 100.0),
    ("repetition_penalty", 1e-3, 1e3),
)
