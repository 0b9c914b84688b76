"""A Flash Next config, read and checked; what this family does not run is refused by name.

A checkpoint (`qwen4_exp`) has the text model's keys in `text_config`, beside a vision tower that is not run; the text
part alone (`qwen4_exp_text`) has them at the top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from tensorfold.compute.foreign import refuse_foreign
from tensorfold.compute.layers.gated_delta import DeltaSizes
from tensorfold.compute.layers.ngrams import NgramShape
from tensorfold.compute.layers.rope import context_window, rope_of
from tensorfold.compute.layers.sparse_index import IndexShape
from tensorfold.compute.nested import is_tied, text_config
from tensorfold.contracts.handles import Activation, Rope, Router
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.states import PAGE
from tensorfold.errors import CheckpointUnsupported
from tensorfold_model_flash_next.primes import primes_from

__all__ = ["AttentionConfig", "FlashNextConfig", "MixtureConfig", "StreamConfig", "flash_next_config"]

_SPARSE: Final = frozenset({"full_attention", "indexed_attention", "qwen_sparse_attention"})
"""Names in `layer_types` for attention with an indexer."""

_GATES: Final[Mapping[str, Activation]] = MappingProxyType({"silu": "silu", "swish": "silu", "sigmoid": "sigmoid"})
"""`output_gate_type` to the operation."""

_NOT_RUN: Final[Mapping[str, tuple[str | bool | int | None, ...]]] = MappingProxyType(
    {
        "hidden_act": (None, "silu"),
        "attention_bias": (None, False),
        "indexer_kv_heads": (None, 1),
        "mamba_ssm_dtype": (None, "float32"),
        "mtp_num_hidden_layers": (None, 0, 1),
        "mtp_use_dedicated_embeddings": (None, False),
        "use_sliding_window": (None, False),
    }
)
"""Keys that ask for other arithmetic than this family's, with the values at which they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionConfig:
    """The sparse layers."""

    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope
    index: IndexShape


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureConfig:
    """The feed-forward block of every layer."""

    experts: int
    width: int
    """Of one expert."""
    shared: int
    """Width of the expert that every row passes."""
    router: Router


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """Residual streams and the gates by which they are read."""

    count: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlashNextConfig:
    """What the decoder is built from."""

    vocabulary: int
    hidden: int
    eps: float
    window: int
    """The longest sequence."""
    tied: bool
    """The output head is the embedding."""
    linear: tuple[bool, ...]
    """For each layer, whether its mixer is a gated delta net; else it is sparse attention."""
    attention: AttentionConfig
    delta: DeltaSizes
    gate_act: Activation
    """Of a delta net's output gate."""
    mixture: MixtureConfig
    streams: StreamConfig
    ngrams: Mapping[int, NgramShape]
    """By layer, those before which n-grams are injected."""
    boundary: int
    """The end token, over which no n-gram reaches."""
    draft: bool
    """The config tells of a draft head."""

    @property
    def wide(self) -> int:
        """Width of all streams together."""
        return self.streams.count * self.hidden


def flash_next_config(config: ModelConfig) -> FlashNextConfig:
    """The config of a checkpoint, with or without a vision tower.

    Raises:
        CheckpointUnsupported: naming the key that is missing, impossible, or asks for what is not run.
    """
    text = text_config(config)
    for key, allowed in _NOT_RUN.items():
        text.require(key, *allowed)
    refuse_foreign(text, own=_NOT_RUN)
    hidden = text.positive("hidden_size")
    streams = StreamConfig(text.positive("hc_count", 4), text.positive("hc_lowrank", 320))
    linear = _linear(text)
    ngrams = _ngrams(text, linear, hidden, streams.count)
    ends = text.ids("eos_token_id")
    if ngrams and not ends:
        raise CheckpointUnsupported(f"{text.where} has no {text.path}eos_token_id, over which no n-gram reaches")
    return FlashNextConfig(
        vocabulary=text.positive("vocab_size"),
        hidden=hidden,
        eps=text.get(float, "rms_norm_eps", 1e-6),
        window=context_window(text),
        tied=is_tied(config, default=False),
        linear=linear,
        attention=_attention(text),
        delta=_delta(text),
        gate_act=_gate_act(text),
        mixture=_mixture(text),
        streams=streams,
        ngrams=ngrams,
        boundary=ends[0] if ends else 0,
        draft=text.get(int, "mtp_num_hidden_layers", 0) == 1,
    )


def _linear(text: ModelConfig) -> tuple[bool, ...]:
    layers = text.layers()
    value: Any = text.values.get("layer_types")
    if value is None:
        interval = text.positive("full_attention_interval", 4)
        return tuple((layer + 1) % interval != 0 for layer in range(layers))
    kinds = cast("list[Any]", value) if isinstance(value, list) else []
    if len(kinds) != layers or not all(
        isinstance(kind, str) and kind in {*_SPARSE, "linear_attention"} for kind in kinds
    ):
        known = " or ".join(sorted({*_SPARSE, "linear_attention"}))
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}layer_types must name {known} for each of {layers} layers"
        )
    return tuple(kind == "linear_attention" for kind in kinds)


def _gate_act(text: ModelConfig) -> Activation:
    name = text.get(str, "output_gate_type", "silu")
    if name not in _GATES:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}output_gate_type is {name!r}, and only {', '.join(_GATES)} are run"
        )
    return _GATES[name]


def _divisor(text: ModelConfig, key: str, whole_key: str, whole: int) -> int:
    value = text.positive(key)
    if whole % value:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}{whole_key} is {whole}, and must be a multiple of {key} {value}"
        )
    return value


# ---- mixers ------------------------------------------------------------------------------------------------


def _attention(text: ModelConfig) -> AttentionConfig:
    heads, head_dim = text.positive("num_attention_heads"), text.positive("head_dim", 256)
    # A text's three M-RoPE positions are equal, so which pair follows which of them changes nothing.
    rope = rope_of(text, head_dim)
    index = _index(text)
    if 2 * len(rope.inv_freq) > index.dim:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}indexer_head_dim is {index.dim}, and {2 * len(rope.inv_freq)} rotated dimensions"
            " must fit in it"
        )
    return AttentionConfig(
        heads=heads,
        kv_heads=_divisor(text, "num_key_value_heads", "num_attention_heads", heads),
        head_dim=head_dim,
        rope=rope,
        index=index,
    )


def _index(text: ModelConfig) -> IndexShape:
    pool, budget = text.positive("indexer_compress_ratio"), text.positive("indexer_budget")
    if pool < 2 or PAGE % pool:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}indexer_compress_ratio is {pool}, and must be from 2 to {PAGE} and divide {PAGE}"
        )
    if budget % pool:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}indexer_budget is {budget}, and indexer_compress_ratio {pool} must divide it"
        )
    return IndexShape(
        heads=text.positive("indexer_n_heads"), dim=text.positive("indexer_head_dim"), budget=budget, pool=pool
    )


def _delta(text: ModelConfig) -> DeltaSizes:
    values = text.positive("linear_num_value_heads")
    return DeltaSizes(
        key_heads=_divisor(text, "linear_num_key_heads", "linear_num_value_heads", values),
        value_heads=values,
        key_dim=text.positive("linear_key_head_dim"),
        value_dim=text.positive("linear_value_head_dim"),
        taps=text.positive("linear_conv_kernel_dim", 4),
    )


# ---- experts and n-grams -----------------------------------------------------------------------------------


def _mixture(text: ModelConfig) -> MixtureConfig:
    experts, chosen = text.positive("num_experts"), text.positive("num_experts_per_tok")
    if chosen > experts:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}num_experts_per_tok is {chosen}, and num_experts is {experts}"
        )
    return MixtureConfig(
        experts=experts,
        width=text.positive("moe_intermediate_size"),
        shared=text.positive("shared_expert_intermediate_size"),
        router=Router(k=chosen, score="softmax", renorm=text.get(bool, "norm_topk_prob", True)),
    )


def _ngrams(text: ModelConfig, linear: tuple[bool, ...], hidden: int, streams: int) -> dict[int, NgramShape]:
    """`ple_layer_ids` counts from 1. Each layer's hashes go on in the sequence of primes where the last one's ended."""
    value: Any = text.values.get("ple_layer_ids") or []
    numbers: list[int] = sorted(set(value)) if _all_integers(value) else []
    if not all(1 <= number <= len(linear) and linear[number - 1] for number in numbers) or bool(value) != bool(numbers):
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}ple_layer_ids is {value!r}, and must name linear layers from 1 to {len(linear)}"
        )
    if not numbers:
        return {}
    longest, heads = text.positive("ngram_size", 3), text.positive("heads_per_ngram", 8)
    parts, width = (longest - 1) * heads, text.positive("ple_embed_dim", hidden)
    if not parts or width % parts:
        raise CheckpointUnsupported(
            f"{text.where}: {text.path}ple_embed_dim is {width}, and must be a multiple of"
            f" (ngram_size - 1) * heads_per_ngram, which is {parts}"
        )
    primes = primes_from(text.positive("ngram_vocab_size_base", 20_000_000), parts * len(numbers))
    whole = text.positive("make_ngram_vocab_size_divisible_by", 128)
    shapes: dict[int, NgramShape] = {}
    for place, number in enumerate(numbers):
        rows = sum(primes[place * parts : (place + 1) * parts])
        shapes[number - 1] = NgramShape(
            longest=longest,
            heads=heads,
            rows=-(-rows // whole) * whole,
            width=width,
            streams=streams,
            hidden=hidden,
            taps=text.positive("ple_conv_kernel_size", 4),
        )
    return shapes


def _all_integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int for each in cast("list[Any]", value))
