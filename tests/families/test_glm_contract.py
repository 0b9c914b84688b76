"""The GLM family keeps the contract of families, on every backend, with and without its draft head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.testing.families import ModelFamilyContract, TinyCheckpoint
from tensorfold.testing.random_tensors import RandomTensors, ReplacedTensors
from tensorfold.testing.ways import WAYS, Loaded, beside_the_head, drafted_reply, serial_reply
from tensorfold_model_glm.family import GlmFamily

Shapes = dict[str, tuple[int, ...]]

HIDDEN, WIDTH, EXPERT, EXPERTS, VOCABULARY = 24, 20, 12, 6, 90
HEADS, RANK, LATENT, NOPE, VALUE = 2, 14, 10, 6, 8
INDEX_HEADS, INDEX_DIM, POOL = 16, 8, 4
LINEAR_HEADS, LINEAR_DIM, TAPS, STREAMS = 2, 6, 4, 3

SHARED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "moe_intermediate_size": EXPERT,
    "num_attention_heads": HEADS,
    "q_lora_rank": RANK,
    "kv_lora_rank": LATENT,
    "qk_nope_head_dim": NOPE,
    "v_head_dim": VALUE,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "routed_scaling_factor": 1.5,
    "index_topk": 12,
    "index_head_dim": INDEX_DIM,
    "index_n_heads": INDEX_HEADS,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
    "num_nextn_predict_layers": 1,
}

GLM: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    **SHARED,
    "num_hidden_layers": 3,
    "qk_rope_head_dim": 4,
    "indexer_types": ["full", "shared", "full"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
}

FLASH: dict[str, Any] = {
    "model_type": "glm5_next_text",
    **SHARED,
    "num_hidden_layers": 3,
    "qk_rope_head_dim": 0,
    "layer_types": ["linear_attention", "deepseek_sparse_attention", "linear_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "index_kpool": POOL,
    "linear_attn_config": {"head_dim": LINEAR_DIM, "num_heads": LINEAR_HEADS, "short_conv_kernel_size": TAPS},
    "hc_mult": STREAMS,
    "hc_sinkhorn_iters": 4,
}


def attention(prefix: str, *, rope: int, indexer: bool, pool: int) -> Shapes:
    """Latent attention, with an indexer or without."""
    shapes: Shapes = {
        "q_a_proj.weight": (RANK, HIDDEN),
        "q_a_layernorm.weight": (RANK,),
        "q_b_proj.weight": (HEADS * (NOPE + rope), RANK),
        "kv_a_proj_with_mqa.weight": (LATENT + rope, HIDDEN),
        "kv_a_layernorm.weight": (LATENT,),
        "kv_b_proj.weight": (HEADS * (NOPE + VALUE), LATENT),
        "o_proj.weight": (HIDDEN, HEADS * VALUE),
    }
    if indexer:
        shapes |= {
            "indexer.wq_b.weight": (INDEX_HEADS * INDEX_DIM, RANK),
            "indexer.wk.weight": (INDEX_DIM, HIDDEN),
            "indexer.weights_proj.weight": (INDEX_HEADS, HIDDEN),
            "indexer.k_norm.weight": (INDEX_DIM,),
            "indexer.k_norm.bias": (INDEX_DIM,),
        }
    if pool > 1:
        shapes |= {
            "indexer.index_kpool_compress_gate": (INDEX_DIM, HIDDEN),
            "indexer.index_kpool_compress_ape": (pool, INDEX_DIM),
        }
    return {f"{prefix}.self_attn.{name}": shape for name, shape in shapes.items()}


def linear(prefix: str) -> Shapes:
    """Kimi delta attention."""
    width = LINEAR_HEADS * LINEAR_DIM
    shapes: Shapes = {
        **{f"{name}_proj.weight": (width, HIDDEN) for name in "qkv"},
        **{f"{name}_conv1d.weight": (width, 1, TAPS) for name in "qkv"},
        **{f"{name}_a_proj.weight": (LINEAR_DIM, HIDDEN) for name in "fg"},
        **{f"{name}_b_proj.weight": (width, LINEAR_DIM) for name in "fg"},
        "b_proj.weight": (LINEAR_HEADS, HIDDEN),
        "dt_bias": (width,),
        "A_log": (LINEAR_HEADS,),
        "o_norm.weight": (LINEAR_DIM,),
        "o_proj.weight": (HIDDEN, width),
    }
    return {f"{prefix}.self_attn.{name}": shape for name, shape in shapes.items()}


def feed_forward(prefix: str, *, sparse: bool) -> Shapes:
    """Norms of a layer and its dense block, or its experts one by one."""

    def gated(name: str, width: int) -> Shapes:
        return {
            f"{prefix}.{name}.gate_proj.weight": (width, HIDDEN),
            f"{prefix}.{name}.up_proj.weight": (width, HIDDEN),
            f"{prefix}.{name}.down_proj.weight": (HIDDEN, width),
        }

    shapes: Shapes = {
        f"{prefix}.input_layernorm.weight": (HIDDEN,),
        f"{prefix}.post_attention_layernorm.weight": (HIDDEN,),
    }
    if not sparse:
        return shapes | gated("mlp", WIDTH)
    shapes |= gated("mlp.shared_experts", EXPERT)
    shapes |= {f"{prefix}.mlp.gate.weight": (EXPERTS, HIDDEN), f"{prefix}.mlp.gate.e_score_correction_bias": (EXPERTS,)}
    for expert in range(EXPERTS):
        shapes |= gated(f"mlp.experts.{expert}", EXPERT)
    return shapes


def tensors(values: Mapping[str, Any]) -> Shapes:
    """Every tensor of a checkpoint with one of the configs above, and its shape."""
    flash = values["model_type"] != "glm_moe_dsa"
    root, rope, pool = ("model.language_model", 0, POOL) if flash else ("model", 4, 1)
    shapes: Shapes = {
        f"{root}.embed_tokens.weight": (VOCABULARY, HIDDEN),
        f"{root}.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    for layer, kind in enumerate(values["layer_types"] if flash else values["indexer_types"]):
        prefix = f"{root}.layers.{layer}"
        if kind == "linear_attention":
            shapes |= linear(prefix)
        else:
            shapes |= attention(prefix, rope=rope, indexer=kind != "shared", pool=pool)
        shapes |= feed_forward(prefix, sparse=values["mlp_layer_types"][layer] == "sparse")
        if flash:
            logits = 2 * STREAMS + STREAMS * STREAMS
            for name in ("hc_attn", "hc_ffn"):
                shapes[f"{prefix}.{name}_fn"] = (logits, STREAMS * HIDDEN)
                shapes[f"{prefix}.{name}_base"] = (logits,)
                shapes[f"{prefix}.{name}_scale"] = (3,)
    if values["num_nextn_predict_layers"]:
        prefix = f"{root}.layers.{values['num_hidden_layers']}"
        shapes |= attention(prefix, rope=rope, indexer=True, pool=pool) | feed_forward(prefix, sparse=True)
        shapes |= {f"{prefix}.{name}.weight": (HIDDEN,) for name in ("enorm", "hnorm", "shared_head.norm")}
        shapes[f"{prefix}.eh_proj.weight"] = (HIDDEN, 2 * HIDDEN)
    return shapes


BOTH = pytest.mark.parametrize("values", [GLM, FLASH], ids=["glm", "flash"])

CONFIGS: dict[str, dict[str, Any]] = {
    "glm": GLM,
    "flash": FLASH,
    "flash without a draft head": {**FLASH, "num_nextn_predict_layers": 0},
}


class TestGlmFamily(ModelFamilyContract):
    """Every kind of layer, chosen positions in most of each sequence."""

    refused: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "scoring_func": "softmax",
        "attention_bias": True,
        "num_nextn_predict_layers": 2,
        "index_topk": 0,
    }

    @pytest.fixture
    def session(self, each_session: Session[Any]) -> Session[Any]:
        """Every backend."""
        return each_session

    @pytest.fixture
    def family(self) -> ModelFamily:
        """The GLM family."""
        return GlmFamily()

    @pytest.fixture(params=CONFIGS)
    def checkpoint(self, request: pytest.FixtureRequest) -> TinyCheckpoint:
        """Random weights."""
        values = CONFIGS[request.param]
        return TinyCheckpoint(ModelConfig(values, {}, f"{request.param}/config.json"), RandomTensors(tensors(values)))


@BOTH
def test_a_draft_head_that_a_conversion_dropped_is_done_without(
    values: dict[str, Any], each_session: Session[Any]
) -> None:
    """The config still tells of it; the model runs, and does not draft."""
    source = RandomTensors(tensors({**values, "num_nextn_predict_layers": 0}))
    loaded = Loaded(GlmFamily(), ModelConfig(values, {}, "config.json"), source, each_session)
    assert loaded.decoder.draft is None
    assert len(serial_reply(loaded, (3, 4, 5), 4).tokens) == 4


@BOTH
def test_what_a_draft_head_shares_may_be_stored_with_it_again(
    values: dict[str, Any], each_session: Session[Any]
) -> None:
    """Copies of embedding and output head in the last layer are left."""
    shapes = tensors(values)
    behind = next(name for name in shapes if name.endswith("eh_proj.weight")).removesuffix("eh_proj.weight")
    for name in ("embed_tokens", "shared_head.head"):
        shapes[f"{behind}{name}.weight"] = (VOCABULARY, HIDDEN)
    loaded = Loaded(GlmFamily(), ModelConfig(values, {}, "config.json"), RandomTensors(shapes), each_session)
    assert loaded.decoder.draft is not None


# ---- the draft head ----------------------------------------------------------------------------------------


def copying(values: dict[str, Any]) -> tuple[ModelConfig, ReplacedTensors]:
    """A model of one layer whose draft head is that layer over the embedded tokens, and knows nothing of its rows.

    Flash's two streams stay equal: every reading takes half of each, every writing all of the output.
    """
    flash = values["model_type"] != "glm_moe_dsa"
    values = {
        **values,
        "num_hidden_layers": 1,
        "indexer_types": ["full"],
        "mlp_layer_types": ["sparse"],
        "layer_types": ["full_attention"],
        "hc_mult": 2,
    }
    shapes = {name: shape for name, shape in tensors(values).items() if ".hc_" not in name}
    root = "model.language_model" if flash else "model"
    target, head = f"{root}.layers.0.", f"{root}.layers.1."
    if flash:
        for name in ("hc_attn", "hc_ffn"):
            shapes |= {
                f"{target}{name}_fn": (8, 2 * HIDDEN),
                f"{target}{name}_base": (8,),
                f"{target}{name}_scale": (3,),
            }
    source = RandomTensors(shapes)
    ones = np.ones(HIDDEN, np.float32)
    embedding = source.read(f"{root}.embed_tokens.weight").values
    replaced = {
        f"{root}.embed_tokens.weight": embedding / np.sqrt(np.mean(embedding**2, axis=1, keepdims=True)),
        f"{root}.norm.weight": ones,
        **{f"{head}{name}.weight": ones for name in ("enorm", "hnorm", "shared_head.norm")},
        f"{head}eh_proj.weight": np.concatenate([np.eye(HIDDEN), np.zeros((HIDDEN, HIDDEN))], axis=1),
        **{
            name: source.read(target + name.removeprefix(head)).values
            for name in shapes
            if name.startswith(head) and target + name.removeprefix(head) in shapes
        },
        **{name: np.zeros(shape, np.float32) for name, shape in shapes.items() if ".hc_" in name},
    }
    return ModelConfig(values, {}, "config.json"), ReplacedTensors(source, replaced)


@BOTH
def test_a_head_that_copies_the_target_says_what_the_target_says(
    values: dict[str, Any], each_session: Session[Any]
) -> None:
    """Token by token, over more positions than its indexer may choose: the layer, its states, its place for tokens."""
    loaded = Loaded(GlmFamily(), *copying(values), each_session)
    tokens = tuple(int(token) for token in np.random.default_rng(3).integers(2, VOCABULARY, 70))
    _, said = beside_the_head(loaded, tokens)
    expected = WAYS["at once"](loaded, tokens[1:])
    np.testing.assert_allclose(said, expected, rtol=0, atol=2e-4)


@BOTH
def test_a_head_without_a_layer_passes_the_targets_rows_on(values: dict[str, Any], each_session: Session[Any]) -> None:
    """Row p of the target stands beside token p + 1: without a layer, the head finds token p + 1 the likeliest too."""
    config, source = copying(values)
    behind = next(name for name in source.names() if name.endswith("eh_proj.weight")).removesuffix("eh_proj.weight")
    silent: dict[str, NDArray[Any]] = {
        name: np.zeros(source.info(name).shape, np.float32)
        for name in source.names()
        if name.startswith(behind) and name.endswith(("o_proj.weight", "down_proj.weight"))
    }
    silent[f"{behind}eh_proj.weight"] = np.concatenate([np.zeros((HIDDEN, HIDDEN)), np.eye(HIDDEN)], axis=1)
    loaded = Loaded(GlmFamily(), config, ReplacedTensors(source, silent), each_session)
    target, said = beside_the_head(loaded, tuple(range(2, 42)))
    np.testing.assert_allclose(said, target, rtol=0, atol=1e-3)


@BOTH
def test_a_drafted_reply_is_the_serial_one_bit_for_bit(values: dict[str, Any], each_session: Session[Any]) -> None:
    """With drafts of which many are kept, one or three in a step."""
    loaded = Loaded(GlmFamily(), *copying(values), each_session)
    prompt = tuple(int(token) for token in np.random.default_rng(4).integers(2, VOCABULARY, 37))
    serial = serial_reply(loaded, prompt, 40)
    for ahead in (1, 3):
        reply = drafted_reply(loaded, prompt, 40, ahead)
        assert reply.tokens == serial.tokens
        np.testing.assert_array_equal(reply.logits, serial.logits)
        assert reply.accepted >= 10, (ahead, reply.accepted)
