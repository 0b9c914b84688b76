"""How many weights a checkpoint has, from its config alone."""

from __future__ import annotations

from tensorfold.compute.layers.kimi_delta import KimiShape
from tensorfold_model_glm.config import GlmConfig
from tensorfold_model_glm.schedule import Layer, Mixer

__all__ = ["draft_parameters", "parameters"]


def parameters(config: GlmConfig) -> int:
    """Without the draft head; a tied output head is counted once."""
    tables = config.vocabulary * config.hidden * (1 if config.tied else 2)
    return tables + config.hidden + sum(_layer(config, layer) + _streams(config) for layer in config.layers)


def draft_parameters(config: GlmConfig) -> int:
    """Of the draft head alone, which shares embedding and output head; 0 when the checkpoint has none."""
    if not config.draft:
        return 0
    joined = 2 * config.hidden * config.hidden
    return joined + 3 * config.hidden + _layer(config, config.draft_layer)


def _layer(config: GlmConfig, layer: Layer) -> int:
    norms = 2 * config.hidden
    return norms + _mixer(config, layer.mixer) + (_mixture(config) if layer.sparse else _mlp(config, config.width))


def _mixer(config: GlmConfig, mixer: Mixer) -> int:
    match mixer:
        case Mixer.INDEXED:
            return _attention(config) + _indexer(config)
        case Mixer.FOLLOWING:
            return _attention(config)
        case Mixer.LINEAR:
            return 0 if config.kimi is None else _kimi(config.hidden, config.kimi.shape)


def _attention(config: GlmConfig) -> int:
    shape = config.attention
    compress = config.hidden * sum(shape.compressed) + shape.query_rank + shape.latent
    query = shape.query_rank * shape.heads * (shape.nope + shape.rope)
    up = shape.latent * shape.heads * (shape.nope + shape.value)
    return compress + query + up + shape.heads * shape.value * config.hidden


def _indexer(config: GlmConfig) -> int:
    shape = config.index
    queries = config.attention.query_rank * shape.heads * shape.dim
    keys = config.hidden * (shape.dim + shape.heads) + 2 * shape.dim
    pool = config.hidden * shape.dim + shape.pool * shape.dim if shape.pool > 1 else 0
    return queries + keys + pool


def _kimi(hidden: int, shape: KimiShape) -> int:
    inputs = hidden * (3 * shape.width + shape.heads + 2 * shape.dim)
    gates = 2 * shape.dim * shape.width + shape.width + shape.heads
    return inputs + 3 * shape.width * shape.taps + gates + shape.dim + shape.width * hidden


def _mlp(config: GlmConfig, width: int) -> int:
    return 3 * config.hidden * width


def _mixture(config: GlmConfig) -> int:
    shape = config.mixture
    router = shape.experts * config.hidden + shape.experts
    return router + shape.experts * _mlp(config, shape.width) + _mlp(config, shape.shared)


def _streams(config: GlmConfig) -> int:
    """Of one layer's two connections."""
    if config.streams is None:
        return 0
    count = config.streams.count
    logits = 2 * count + count * count
    return 2 * (logits * count * config.hidden + logits + 3)
