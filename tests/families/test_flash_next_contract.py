"""The Flash Next family keeps the contract of families, on every backend, with and without its draft head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.loading import check_weights
from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.errors import WeightsMismatch
from tensorfold.testing.families import ModelFamilyContract, TinyCheckpoint
from tensorfold.testing.random_tensors import RandomTensors, ReplacedTensors
from tensorfold.testing.ways import WAYS, Loaded, beside_the_head, drafted_reply, serial_reply
from tensorfold_model_flash_next.family import FlashNextFamily

Shapes = dict[str, tuple[int, ...]]

HIDDEN, EXPERT, SHARED, EXPERTS, VOCABULARY = 24, 12, 10, 6, 90
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8
INDEX_HEADS, INDEX_DIM = 16, 8
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, TAPS = 2, 4, 6, 5, 4
STREAMS, RANK = 3, 7
LONGEST, HASHES = 3, 2
PRIMES = (31, 37, 41, 43)
"""The hashes' sizes: primes from 31."""
ROOT, HEAD = "model.language_model", "mtp"
PLE = f"{ROOT}.layers.1.ple"

CONFIG: dict[str, Any] = {
    "model_type": "qwen4_exp_text",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "num_hidden_layers": 3,
    "layer_types": ["full_attention", "linear_attention", "full_attention"],
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "rope_parameters": {"rope_theta": 1000.0, "partial_rotary_factor": 0.5, "rope_type": "default"},
    "moe_intermediate_size": EXPERT,
    "shared_expert_intermediate_size": SHARED,
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "linear_num_key_heads": KEY_HEADS,
    "linear_num_value_heads": VALUE_HEADS,
    "linear_key_head_dim": KEY_DIM,
    "linear_value_head_dim": VALUE_DIM,
    "hc_count": STREAMS,
    "hc_lowrank": RANK,
    "ple_layer_ids": [2],
    "ple_embed_dim": 16,
    "ngram_size": LONGEST,
    "heads_per_ngram": HASHES,
    "ngram_vocab_size_base": 31,
    "make_ngram_vocab_size_divisible_by": 8,
    "indexer_n_heads": INDEX_HEADS,
    "indexer_kv_heads": 1,
    "indexer_head_dim": INDEX_DIM,
    "indexer_budget": 12,
    "indexer_compress_ratio": 4,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
    "mtp_num_hidden_layers": 1,
}


def streams(prefix: str, *, injects: bool) -> Shapes:
    """A mixture of the streams, and the weights of writing into them."""
    wide = STREAMS * HIDDEN
    shapes: Shapes = {
        f"{prefix}.hc_norm.weight": (wide,),
        f"{prefix}.input_mix_weight_down.weight": (RANK, wide),
        f"{prefix}.input_mix_weight_up.weight": (wide, RANK),
    }
    return shapes | ({f"{prefix}.block_inject_weight.weight": (STREAMS, wide)} if injects else {})


def attention(prefix: str) -> Shapes:
    """Gated attention with an indexer."""
    queries, keys = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: Shapes = {
        "q_proj.weight": (2 * queries, HIDDEN),
        "k_proj.weight": (keys, HIDDEN),
        "v_proj.weight": (keys, HIDDEN),
        "o_proj.weight": (HIDDEN, queries),
        "q_norm.weight": (HEAD_DIM,),
        "k_norm.weight": (HEAD_DIM,),
        "indexer.index_qk_proj.weight": ((INDEX_HEADS + 1) * INDEX_DIM, HIDDEN),
        "indexer.q_layernorm.weight": (INDEX_DIM,),
        "indexer.k_layernorm.weight": (INDEX_DIM,),
    }
    return {f"{prefix}.self_attn.{name}": shape for name, shape in shapes.items()}


def delta(prefix: str) -> Shapes:
    """A gated delta net."""
    values = VALUE_HEADS * VALUE_DIM
    channels = 2 * KEY_HEADS * KEY_DIM + values
    shapes: Shapes = {
        "in_proj_qkv.weight": (channels, HIDDEN),
        "in_proj_z.weight": (values, HIDDEN),
        "in_proj_b.weight": (VALUE_HEADS, HIDDEN),
        "in_proj_a.weight": (VALUE_HEADS, HIDDEN),
        "conv1d.weight": (channels, 1, TAPS),
        "A_log": (VALUE_HEADS,),
        "dt_bias": (VALUE_HEADS,),
        "norm.weight": (VALUE_DIM,),
        "out_proj.weight": (HIDDEN, values),
    }
    return {f"{prefix}.linear_attn.{name}": shape for name, shape in shapes.items()}


def mixture(prefix: str) -> Shapes:
    """Experts in two stacks, and the shared one."""
    return {
        f"{prefix}.mlp.gate.weight": (EXPERTS, HIDDEN),
        f"{prefix}.mlp.shared_expert_gate.weight": (1, HIDDEN),
        f"{prefix}.mlp.experts.gate_up_proj": (EXPERTS, 2 * EXPERT, HIDDEN),
        f"{prefix}.mlp.experts.down_proj": (EXPERTS, HIDDEN, EXPERT),
        f"{prefix}.mlp.shared_expert.gate_proj.weight": (SHARED, HIDDEN),
        f"{prefix}.mlp.shared_expert.up_proj.weight": (SHARED, HIDDEN),
        f"{prefix}.mlp.shared_expert.down_proj.weight": (HIDDEN, SHARED),
    }


def ngrams() -> Shapes:
    """The table in two shards, its hashes, and what injects its rows."""
    wide, width, rows = STREAMS * HIDDEN, 16, sum(PRIMES)
    return {
        f"{PLE}.ple_embedding.layer_multipliers": (LONGEST,),
        f"{PLE}.ple_embedding.ngram_heads_vocab_sizes": (len(PRIMES),),
        f"{PLE}.ple_embedding.ngram_heads_offsets": (len(PRIMES),),
        f"{PLE}.ple_embedding.ngram_embedding.shard_0.weight": (100, width // len(PRIMES)),
        f"{PLE}.ple_embedding.ngram_embedding.shard_1.weight": (rows - 100, width // len(PRIMES)),
        f"{PLE}.key_proj.weight": (wide, width),
        f"{PLE}.value_proj.weight": (HIDDEN, width),
        f"{PLE}.conv1d.weight": (wide, 1, TAPS),
        **{f"{PLE}.{name}.weight": (wide,) for name in ("norm_key", "norm_query", "norm_conv")},
    }


def layer(prefix: str, kind: str) -> Shapes:
    """One layer without n-grams."""
    mixer = delta(prefix) if kind == "linear_attention" else attention(prefix)
    connections = (f"{prefix}.attn_hyper_connection", f"{prefix}.mlp_hyper_connection")
    return mixer | mixture(prefix) | streams(connections[0], injects=True) | streams(connections[1], injects=True)


def draft_head() -> Shapes:
    """The checkpoint's own."""
    return {
        f"{HEAD}.fc_embedding.weight": (HIDDEN, HIDDEN),
        f"{HEAD}.fc_hidden.weight": (HIDDEN, HIDDEN),
        f"{HEAD}.pre_fc_norm_embedding.weight": (HIDDEN,),
        f"{HEAD}.pre_fc_norm_hidden.weight": (STREAMS * HIDDEN,),
        **streams(f"{HEAD}.hyper_connection_mixer", injects=False),
        **layer(f"{HEAD}.layers.0", "full_attention"),
    }


def tensors(values: Mapping[str, Any]) -> Shapes:
    """Every tensor of a checkpoint with the config above or one like it, and its shape."""
    shapes: Shapes = {
        f"{ROOT}.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "lm_head.weight": (VOCABULARY, HIDDEN),
        **streams(f"{ROOT}.hyper_connection_mixer", injects=False),
    }
    for number, kind in enumerate(values["layer_types"]):
        shapes |= layer(f"{ROOT}.layers.{number}", kind)
    return (
        shapes
        | (ngrams() if values["ple_layer_ids"] else {})
        | (draft_head() if values["mtp_num_hidden_layers"] else {})
    )


HASHING: dict[str, NDArray[np.int64]] = {
    f"{PLE}.ple_embedding.layer_multipliers": np.array([2**55 + 7, 2**54 + 11, 2**53 + 5]),
    f"{PLE}.ple_embedding.ngram_heads_vocab_sizes": np.array(PRIMES),
    f"{PLE}.ple_embedding.ngram_heads_offsets": np.cumsum((0, *PRIMES[:-1])),
}


def random_source(values: Mapping[str, Any]) -> ReplacedTensors:
    """Random weights, with hashes that reach the whole table."""
    return ReplacedTensors(RandomTensors(tensors(values)), HASHING)


CONFIGS: dict[str, dict[str, Any]] = {
    "with a draft head": CONFIG,
    "without": {**CONFIG, "mtp_num_hidden_layers": 0, "output_gate_type": "sigmoid"},
}


class TestFlashNextFamily(ModelFamilyContract):
    """Every kind of layer, chosen positions in most of each sequence."""

    refused: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "output_gate_type": "tanh",
        "mtp_num_hidden_layers": 2,
        "indexer_kv_heads": 2,
        "ple_layer_ids": [1],
    }
    steering: ClassVar[tuple[str, ...]] = tuple(HASHING)

    @pytest.fixture
    def session(self, each_session: Session[Any]) -> Session[Any]:
        """Every backend."""
        return each_session

    @pytest.fixture
    def family(self) -> ModelFamily:
        """The Flash Next family."""
        return FlashNextFamily()

    @pytest.fixture(params=CONFIGS)
    def checkpoint(self, request: pytest.FixtureRequest) -> TinyCheckpoint:
        """Random weights."""
        values = CONFIGS[request.param]
        return TinyCheckpoint(ModelConfig(values, {}, "config.json"), random_source(values))


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("ngram_heads_offsets", [0, 31, 68, 110]),
        ("ngram_heads_vocab_sizes", [31, 37, 41]),
        ("layer_multipliers", [3, 5]),
    ],
)
def test_hashes_that_do_not_fit_the_table_are_refused(name: str, numbers: list[int]) -> None:
    """Before a row number beyond the table, or too few of them, could be looked up."""
    wrong = {f"{PLE}.ple_embedding.{name}": np.array(numbers)}
    source = ReplacedTensors(random_source(CONFIG), wrong)
    with pytest.raises(WeightsMismatch, match=name):
        check_weights(FlashNextFamily(), ModelConfig(CONFIG, {}, "config.json"), source)


def test_a_draft_head_that_a_conversion_dropped_is_done_without(each_session: Session[Any]) -> None:
    """The config still tells of it; the model runs, and does not draft."""
    source = random_source({**CONFIG, "mtp_num_hidden_layers": 0})
    loaded = Loaded(FlashNextFamily(), ModelConfig(CONFIG, {}, "config.json"), source, each_session)
    assert loaded.decoder.draft is None
    assert len(serial_reply(loaded, (3, 4, 5), 4).tokens) == 4


def test_a_draft_head_that_the_config_does_not_tell_of_is_left(each_session: Session[Any]) -> None:
    """Its tensors do not count as unknown."""
    silent = ModelConfig({**CONFIG, "mtp_num_hidden_layers": 0}, {}, "config.json")
    loaded = Loaded(FlashNextFamily(), silent, random_source(CONFIG), each_session)
    assert loaded.decoder.draft is None


# ---- the draft head ----------------------------------------------------------------------------------------


def copying() -> tuple[ModelConfig, ReplacedTensors]:
    """A model of one layer whose draft head is that layer over the embedded tokens, and knows nothing of its rows."""
    values = {**CONFIG, "num_hidden_layers": 1, "layer_types": ["full_attention"], "ple_layer_ids": []}
    shapes = tensors(values)
    source = RandomTensors(shapes)
    embedding = source.read(f"{ROOT}.embed_tokens.weight").values
    copies = {f"{HEAD}.layers.": f"{ROOT}.layers.", f"{HEAD}.hyper": f"{ROOT}.hyper"}
    replaced: dict[str, NDArray[Any]] = {
        f"{ROOT}.embed_tokens.weight": embedding / np.sqrt(np.mean(embedding**2, axis=1, keepdims=True)),
        f"{HEAD}.pre_fc_norm_embedding.weight": np.zeros(HIDDEN),
        f"{HEAD}.pre_fc_norm_hidden.weight": np.zeros(STREAMS * HIDDEN),
        f"{HEAD}.fc_embedding.weight": np.eye(HIDDEN),
        f"{HEAD}.fc_hidden.weight": np.zeros((HIDDEN, HIDDEN)),
    }
    for name in shapes:
        for mine, theirs in copies.items():
            if name.startswith(mine):
                replaced[name] = source.read(theirs + name.removeprefix(mine)).values
    return ModelConfig(values, {}, "config.json"), ReplacedTensors(source, replaced)


def test_a_head_that_copies_the_target_says_what_the_target_says(each_session: Session[Any]) -> None:
    """Token by token, over more positions than its indexer may choose: the layer, its states, its place for tokens."""
    loaded = Loaded(FlashNextFamily(), *copying(), each_session)
    tokens = tuple(int(token) for token in np.random.default_rng(3).integers(2, VOCABULARY, 70))
    _, said = beside_the_head(loaded, tokens)
    np.testing.assert_allclose(said, WAYS["at once"](loaded, tokens[1:]), rtol=0, atol=2e-4)


def test_a_head_without_a_layer_passes_the_targets_streams_on(each_session: Session[Any]) -> None:
    """Row p of the target stands beside token p + 1: without a layer, the head finds token p + 1 the likeliest too."""
    config, source = copying()
    silent: dict[str, NDArray[Any]] = {
        name: np.zeros(source.info(name).shape)
        for name in source.names()
        if name.startswith(f"{HEAD}.layers.") and ("o_proj" in name or "down_proj" in name)
    }
    silent |= {f"{HEAD}.fc_embedding.weight": np.zeros((HIDDEN, HIDDEN)), f"{HEAD}.fc_hidden.weight": np.eye(HIDDEN)}
    loaded = Loaded(FlashNextFamily(), config, ReplacedTensors(source, silent), each_session)
    target, said = beside_the_head(loaded, tuple(range(2, 42)))
    np.testing.assert_allclose(said, target, rtol=0, atol=1e-3)


def test_a_drafted_reply_is_the_serial_one_bit_for_bit(each_session: Session[Any]) -> None:
    """With drafts of which many are kept, one or three in a step."""
    loaded = Loaded(FlashNextFamily(), *copying(), each_session)
    prompt = tuple(int(token) for token in np.random.default_rng(4).integers(2, VOCABULARY, 37))
    serial = serial_reply(loaded, prompt, 40)
    for ahead in (1, 3):
        reply = drafted_reply(loaded, prompt, 40, ahead)
        assert reply.tokens == serial.tokens
        np.testing.assert_array_equal(reply.logits, serial.logits)
        assert reply.accepted >= 10, (ahead, reply.accepted)
