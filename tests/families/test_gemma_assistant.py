"""Gemma 4's drafter, a checkpoint of its own: it guesses what transformers' class guesses, and replies stay the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.compute.runner import HiddenRows
from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import CanPair
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.step import Segment
from tensorfold.contracts.tensors import Dense
from tensorfold.errors import BackendError, CheckpointUnsupported, WeightsMismatch
from tensorfold.testing.array_tensors import ArrayTensors, arrays_of
from tensorfold.testing.drafted_pair import DraftedPair, without_layers
from tensorfold.testing.family_model import feed, slot_of
from tensorfold_model_gemma.family import GemmaFamily

WritesPair: TypeAlias = Callable[[Path, Mapping[str, Any], Mapping[str, Any]], tuple[list[int], NDArray[np.float32]]]

SLIDING, FULL = "sliding_attention", "full_attention"
VOCABULARY, HIDDEN, WIDTH, HEADS, HEAD_DIM, FULL_DIM = 96, 32, 40, 4, 8, 16
WINDOW = 20
TYPES = [SLIDING, FULL, SLIDING, FULL]

TARGET: dict[str, Any] = {
    "model_type": "gemma4_text",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "num_hidden_layers": len(TYPES),
    "layer_types": TYPES,
    "head_dim": HEAD_DIM,
    "global_head_dim": FULL_DIM,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "sliding_window": WINDOW,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "eos_token_id": 1,
}
OWN: dict[str, Any] = {
    **TARGET,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "num_kv_shared_layers": 2,
    "layer_types": [SLIDING, FULL],
}
DRAFTER: dict[str, Any] = {
    "model_type": "gemma4_assistant",
    "backbone_hidden_size": HIDDEN,
    "tie_word_embeddings": False,
    "text_config": OWN,
}
CLUSTERED = {**DRAFTER, "use_ordered_embeddings": True, "num_centroids": 12, "centroid_intermediate_top_k": 5}

ORDER = "masked_embedding.token_ordering"
NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")

Arrays = dict[str, NDArray[np.float32]]


def config(values: Mapping[str, Any], where: str = "config.json") -> ModelConfig:
    return ModelConfig(values, {}, where)


def arrays(text: Mapping[str, Any], *, drafter: bool) -> Arrays:
    """Random weights of a target, or of a drafter."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    if drafter:
        shapes |= {"pre_projection.weight": (HIDDEN, 2 * HIDDEN), "post_projection.weight": (HIDDEN, HIDDEN)}
    for number, kind in enumerate(text["layer_types"]):
        width, keys = (FULL_DIM, 1) if kind == FULL else (HEAD_DIM, 2)
        queries = text["num_attention_heads"] * width
        own: dict[str, tuple[int, ...]] = {
            "self_attn.q_proj.weight": (queries, HIDDEN),
            "self_attn.q_norm.weight": (width,),
            "self_attn.o_proj.weight": (HIDDEN, queries),
            "mlp.gate_proj.weight": (WIDTH, HIDDEN),
            "mlp.up_proj.weight": (WIDTH, HIDDEN),
            "mlp.down_proj.weight": (HIDDEN, WIDTH),
            "layer_scalar": (1,),
            **{f"{name}.weight": (HIDDEN,) for name in NORMS},
        }
        if not drafter:
            own["self_attn.k_proj.weight"] = (keys * width, HIDDEN)
            own["self_attn.k_norm.weight"] = (width,)
            if kind == SLIDING:
                own["self_attn.v_proj.weight"] = (keys * width, HIDDEN)
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in own.items()}
    return arrays_of(shapes)


def clustered(drafter: Arrays) -> dict[str, NDArray[Any]]:
    """The same drafter with clusters of tokens."""
    order = np.random.default_rng(5).permutation(VOCABULARY).astype(np.int64)
    centroids = np.random.default_rng(6).normal(size=(12, HIDDEN)).astype(np.float32)
    return {**drafter, ORDER: order, "masked_embedding.centroids.weight": centroids}


class Tensors(ArrayTensors):
    """The same with an array of integers, if there is one."""

    def __init__(self, values: Mapping[str, NDArray[Any]]) -> None:
        super().__init__(values)
        self._order = values.get(ORDER)

    def read(self, name: str) -> Dense:
        """Its values."""
        return Dense(self._order, "i64") if name == ORDER and self._order is not None else super().read(name)


def paired(
    session: Session[Any], target: ModelConfig, weights: TensorSource, drafter: ModelConfig, own: TensorSource
) -> DraftedPair:
    return DraftedPair(
        session=session,
        family=GemmaFamily(),
        target=target,
        weights=weights,
        drafter=drafter,
        drafter_weights=own,
    )


# ---- exactness -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clusters", [False, True], ids=["whole vocabulary", "clusters"])
def test_replies_drafted_by_it_are_the_serial_ones(each_session: Session[Any], clusters: bool) -> None:
    """A drafter that knows nothing: wrong guesses at every length, across pages and windows, alone and together."""
    own = arrays(OWN, drafter=True)
    pair = paired(
        each_session,
        config(TARGET),
        ArrayTensors(arrays(TARGET, drafter=False)),
        config(CLUSTERED if clusters else DRAFTER),
        Tensors(clustered(own) if clusters else own),
    )
    assert all(answer.usage.drafted_tokens > 30 for answer in pair.drafted(70))


def test_a_drafter_that_copies_its_target_is_always_right(each_session: Session[Any]) -> None:
    """The target's layers add nothing, so that the next token follows from the last; the drafter has its matrices."""
    target, own = arrays(TARGET, drafter=False), arrays(OWN, drafter=True)
    without_layers(target, own)
    # The embedding, which is the first half, is passed on as it is.
    own["pre_projection.weight"] = np.eye(HIDDEN, 2 * HIDDEN, dtype=np.float32)
    for name in ("model.norm.weight", "lm_head.weight"):
        own[name] = target[name]
    pair = paired(each_session, config(TARGET), ArrayTensors(target), config(DRAFTER), ArrayTensors(own))
    for answer in pair.drafted(41):
        assert answer.usage.accepted_tokens == answer.usage.drafted_tokens >= 25


# ---- the rows that it takes --------------------------------------------------------------------------------------


def test_it_takes_one_row_at_the_last_one_of_a_reply(each_session: Session[Any]) -> None:
    """Anywhere else it would read what is not there; as often as one likes, since it leaves nothing."""
    own = ArrayTensors(arrays(OWN, drafter=True))
    pair = paired(each_session, config(TARGET), ArrayTensors(arrays(TARGET, drafter=False)), config(DRAFTER), own)
    runner = pair.runner()
    slot = slot_of(runner)
    feed(runner, slot, range(8), [8], "chunk")
    output = runner.forward([Segment(slot, (8,), 8)])
    runner.commit(slot, 9)
    last = [HiddenRows(output, 0, 1)]
    first, again = (runner.logits(runner.draft([Segment(slot, (9,), 8)], last), [0]) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    for segment in (Segment(slot, (9,), 9), Segment(slot, (9,), 7), Segment(slot, (9, 9), 8)):
        with pytest.raises(BackendError, match=f"one row of slot {slot} at its last one, 8"):
            runner.draft([segment], last)


# ---- pairs that do not fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model_type": "gemma4"}, "what drafts for a Gemma 4 is 'gemma4_assistant'"),
        ({"backbone_hidden_size": 48}, "backbone_hidden_size is 48, and the target's is 32"),
        ({"text_config": {**OWN, "vocab_size": 97}}, "vocab_size is 97, and the target's is 96"),
        ({"text_config": {**OWN, "sliding_window": 21}}, "sliding_window is 21, and the target's is 20"),
        (
            {"text_config": {**OWN, "head_dim": 12}},
            "head_dim of a sliding_attention layer is 12, and the target's is 8",
        ),
        (
            {"text_config": {**OWN, "num_global_key_value_heads": 2}},
            "num_key_value_heads of a full_attention layer is 2, and the target's is 1",
        ),
        ({"text_config": {**OWN, "rope_parameters": {SLIDING: {"rope_theta": 5.0}, FULL: {}}}}, "rope_parameters"),
        ({"text_config": {**OWN, "num_kv_shared_layers": 1}}, "num_kv_shared_layers is 1"),
        ({"text_config": {**OWN, "enable_moe_block": True}}, "enable_moe_block is True"),
        ({"use_ordered_embeddings": True, "num_centroids": 7}, "num_centroids is 7"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pair_that_does_not_fit_is_refused_by_the_key_that_says_so(change: Mapping[str, Any], named: str) -> None:
    """Before a weight is read."""
    with pytest.raises(CheckpointUnsupported, match=named):
        GemmaFamily().check_drafter(config(TARGET), config({**DRAFTER, **change}, "drafter.json"))


def test_a_gemma_3_has_no_drafter() -> None:
    target = {**TARGET, "model_type": "gemma3_text"}
    with pytest.raises(CheckpointUnsupported, match="drafters are Gemma 4's"):
        GemmaFamily().check_drafter(config(target), config(DRAFTER))


def test_a_drafter_is_not_served_alone() -> None:
    """It says which way it is meant to be used."""
    assert isinstance(GemmaFamily(), CanPair)
    with pytest.raises(CheckpointUnsupported, match="--draft-model"):
        GemmaFamily().claim(config(DRAFTER))


def test_every_tensor_of_a_drafter_that_does_not_fit_is_named(each_session: Session[Any]) -> None:
    """Missing, misshapen and foreign ones together."""
    own = arrays(OWN, drafter=True)
    own["post_projection.weight"] = own["post_projection.weight"][:-1]
    own["model.layers.0.self_attn.k_proj.bias"] = own.pop("model.norm.weight")
    own["mtp.fc.weight"] = own["lm_head.weight"]
    weights = ArrayTensors(arrays(TARGET, drafter=False))
    with pytest.raises(WeightsMismatch) as caught:
        paired(each_session, config(TARGET), weights, config(DRAFTER, "drafter.json"), ArrayTensors(own)).runner()
    for said in ("drafter.json", "post_projection.weight is [31, 32]", "model.norm.weight is missing", "mtp.fc.weight"):
        assert said in str(caught.value)


# ---- transformers ------------------------------------------------------------------------------------------------

VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tied": ({"attention_k_eq_v": True}, {}),
    "untied": ({"attention_k_eq_v": True, "tie_word_embeddings": False}, {"tie_word_embeddings": False}),
    "clusters, and a target with shared keys": (
        {"num_kv_shared_layers": 2, "num_global_key_value_heads": 2},
        {"use_ordered_embeddings": True, "num_centroids": 20, "centroid_intermediate_top_k": 6},
    ),
}


@pytest.mark.torch
@pytest.mark.parametrize("variant", VARIANTS)
def test_it_guesses_what_transformers_class_guesses(
    tmp_path: Path, each_session: Session[Any], gemma_and_assistant: WritesPair, variant: str
) -> None:
    """From the target's last row and keys, and on from its own rows: logits within 1e-4, where they are not left out."""
    tokens, expected = gemma_and_assistant(tmp_path, *VARIANTS[variant])
    target, drafter = FolderCheckpoint(tmp_path / "target"), FolderCheckpoint(tmp_path / "drafter")
    found = paired(each_session, target.config, target, drafter.config, drafter).guesses(tokens, len(expected))
    for got, row in zip(found, expected, strict=True):
        kept = row > row.min() if "clusters" in variant else np.ones_like(row, bool)
        assert (got[~kept] < -1e4).all()
        np.testing.assert_allclose(got[kept], row[kept], atol=1e-4, rtol=0)
