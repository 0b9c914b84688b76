"""Chains of elementwise operations, each one kernel on a GPU.

`mx.compile` writes a kernel for a chain when it is first called, for every shape at once. On a host it would call a
C++ compiler instead, and gain nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, TypeVar, cast

import mlx.core as mx

from tensorfold.contracts.handles import Activation

__all__ = ["Elementwise"]

One: TypeAlias = Callable[[mx.array], mx.array]
Two: TypeAlias = Callable[[mx.array, mx.array], mx.array]
Four: TypeAlias = Callable[[mx.array, mx.array, mx.array, mx.array], mx.array]

F = TypeVar("F", bound=Callable[..., mx.array])

_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)


def _silu(x: mx.array) -> mx.array:
    return x * mx.sigmoid(x)


def _gelu(x: mx.array) -> mx.array:
    return (mx.tanh((x + x * x * x * 0.044715) * _SQRT_2_OVER_PI) + 1.0) * 0.5 * x


def _relu2(x: mx.array) -> mx.array:
    positive = mx.maximum(x, 0.0)
    return positive * positive


def _softplus(x: mx.array) -> mx.array:
    return mx.maximum(x, 0.0) + mx.log1p(mx.exp(-mx.abs(x)))


_ACTIVATIONS: dict[Activation, One] = {
    "silu": _silu,
    "gelu": _gelu,
    "relu2": _relu2,
    "sigmoid": mx.sigmoid,
}


class Elementwise:
    """The chains of one device: computed in float32, returned in the type of activations or in that of the input."""

    def __init__(self, act: mx.Dtype, *, compiles: bool) -> None:
        def chain(function: F) -> F:
            return cast("F", mx.compile(function, shapeless=True)) if compiles else function

        self.activated = {name: chain(_in_own_type(function)) for name, function in _ACTIVATIONS.items()}
        """x: the activation, in x's type."""
        self.gated = {name: chain(_gated(function, act)) for name, function in _ACTIVATIONS.items()}
        """gate, up: activation(gate) * up."""
        self.opened = {name: chain(_opened(function)) for name, function in _ACTIVATIONS.items()}
        """x, gate: x * activation(gate), in float32."""
        self.softplus = chain(_in_own_type(_softplus))
        self.turned = chain(_turned(act))
        """x, its partners, cosines and sines: rotary embedding."""


def _in_own_type(function: One) -> One:
    def chain(x: mx.array) -> mx.array:
        return function(x.astype(mx.float32)).astype(x.dtype)

    return chain


def _gated(function: One, act: mx.Dtype) -> Two:
    def chain(gate: mx.array, up: mx.array) -> mx.array:
        return (function(gate.astype(mx.float32)) * up.astype(mx.float32)).astype(act)

    return chain


def _opened(function: One) -> Two:
    def chain(x: mx.array, gate: mx.array) -> mx.array:
        return x.astype(mx.float32) * function(gate.astype(mx.float32))

    return chain


def _turned(act: mx.Dtype) -> Four:
    def chain(x: mx.array, partners: mx.array, cosines: mx.array, sines: mx.array) -> mx.array:
        return (x * cosines + partners * sines).astype(act)

    return chain
