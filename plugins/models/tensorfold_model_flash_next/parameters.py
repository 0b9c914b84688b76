"""How many weights a checkpoint has, from its config alone."""

from __future__ import annotations

from tensorfold.compute.layers.ngrams import NgramShape
from tensorfold_model_flash_next.config import FlashNextConfig

__all__ = ["draft_parameters", "parameters"]


def parameters(config: FlashNextConfig) -> int:
    """Without the draft head; a tied output head is counted once."""
    tables = config.vocabulary * config.hidden * (1 if config.tied else 2)
    layers = sum(_layer(config, linear=linear) for linear in config.linear)
    return tables + layers + _mixture_of_streams(config) + sum(_ngrams(shape) for shape in config.ngrams.values())


def draft_parameters(config: FlashNextConfig) -> int:
    """Of the draft head alone, which shares embedding and output head; 0 when the config tells of none."""
    if not config.draft:
        return 0
    inputs = 2 * config.hidden * config.hidden + config.hidden + config.wide
    return inputs + _layer(config, linear=False) + _mixture_of_streams(config)


def _layer(config: FlashNextConfig, *, linear: bool) -> int:
    mixer = config.delta.parameters(config.hidden) if linear else _attention(config)
    injections = 2 * config.streams.count * config.wide
    return mixer + _mixture(config) + 2 * _mixture_of_streams(config) + injections


def _mixture_of_streams(config: FlashNextConfig) -> int:
    return config.wide + 2 * config.streams.rank * config.wide


def _attention(config: FlashNextConfig) -> int:
    shape = config.attention
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    indexer = config.hidden * (shape.index.heads + 1) * shape.index.dim + 2 * shape.index.dim
    return config.hidden * (3 * queries + 2 * keys) + 2 * shape.head_dim + indexer


def _mixture(config: FlashNextConfig) -> int:
    shape = config.mixture
    gates = config.hidden * (shape.experts + 1)
    return gates + 3 * config.hidden * (shape.experts * shape.width + shape.shared)


def _ngrams(shape: NgramShape) -> int:
    wide = shape.streams * shape.hidden
    table = shape.rows * (shape.width // shape.parts) + 2 * shape.parts + shape.longest
    return table + shape.width * (wide + shape.hidden) + 3 * wide + wide * shape.taps
