"""The Qwen family keeps the contract of families, on every backend, with and without its draft head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.loading import load_decoder
from tensorfold.compute.runner import HiddenRows
from tensorfold.compute.weights import TensorSource
from tensorfold.contracts.backend import Session
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.step import Segment
from tensorfold.testing.array_tensors import ArrayTensors, arrays_of
from tensorfold.testing.families import ModelFamilyContract, TinyCheckpoint
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold.testing.ways import WAYS, Loaded, drafted_reply, serial_reply
from tensorfold_model_qwen.family import QwenFamily

Shapes = dict[str, tuple[int, ...]]

HIDDEN, WIDTH, EXPERTS, EXPERT, SHARED_EXPERT, VOCABULARY = 32, 40, 6, 12, 20, 90
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, TAPS = 2, 4, 6, 10, 4
CHANNELS, VALUES = 2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM, VALUE_HEADS * VALUE_DIM

DENSE: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "linear_num_key_heads": KEY_HEADS,
    "linear_num_value_heads": VALUE_HEADS,
    "linear_key_head_dim": KEY_DIM,
    "linear_value_head_dim": VALUE_DIM,
    "linear_conv_kernel_dim": TAPS,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 0]},
    "max_position_embeddings": 256,
    "mtp_num_hidden_layers": 1,
    "eos_token_id": 1,
}

MIXTURE: dict[str, Any] = {
    **DENSE,
    "model_type": "qwen3_5_moe_text",
    "num_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": EXPERT,
    "shared_expert_intermediate_size": SHARED_EXPERT,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "dense with biases, tied": {
        **DENSE,
        "attention_bias": True,
        "tie_word_embeddings": True,
        "mtp_num_hidden_layers": 0,
    },
    "dense with a draft head": DENSE,
    "experts with a draft head": MIXTURE,
}


def mixer(prefix: str, kind: str, *, bias: bool) -> Shapes:
    """A gated delta net, or gated attention."""
    if kind == "linear_attention":
        shapes: Shapes = {
            "in_proj_qkv.weight": (CHANNELS, HIDDEN),
            "in_proj_z.weight": (VALUES, HIDDEN),
            "in_proj_b.weight": (VALUE_HEADS, HIDDEN),
            "in_proj_a.weight": (VALUE_HEADS, HIDDEN),
            "conv1d.weight": (CHANNELS, 1, TAPS),
            "A_log": (VALUE_HEADS,),
            "dt_bias": (VALUE_HEADS,),
            "norm.weight": (VALUE_DIM,),
            "out_proj.weight": (HIDDEN, VALUES),
        }
        return {f"{prefix}.linear_attn.{name}": shape for name, shape in shapes.items()}
    rows = {"q": 2 * HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM, "o": HIDDEN}
    shapes = {f"{name}_proj.weight": (size, HIDDEN) for name, size in rows.items()}
    shapes["o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
    if bias:
        shapes |= {f"{name}_proj.bias": (size,) for name, size in rows.items()}
    shapes |= {f"{name}_norm.weight": (HEAD_DIM,) for name in "qk"}
    return {f"{prefix}.self_attn.{name}": shape for name, shape in shapes.items()}


def feed_forward(prefix: str, values: Mapping[str, Any]) -> Shapes:
    """A dense block, or experts one by one."""

    def gated(name: str, width: int) -> Shapes:
        return {
            f"{prefix}.{name}.gate_proj.weight": (width, HIDDEN),
            f"{prefix}.{name}.up_proj.weight": (width, HIDDEN),
            f"{prefix}.{name}.down_proj.weight": (HIDDEN, width),
        }

    if "num_experts" not in values:
        return gated("mlp", WIDTH)
    shapes = gated("mlp.shared_expert", SHARED_EXPERT)
    shapes |= {f"{prefix}.mlp.gate.weight": (EXPERTS, HIDDEN), f"{prefix}.mlp.shared_expert_gate.weight": (1, HIDDEN)}
    for expert in range(EXPERTS):
        shapes |= gated(f"mlp.experts.{expert}", EXPERT)
    return shapes


def layer(prefix: str, kind: str, values: Mapping[str, Any]) -> Shapes:
    """One layer."""
    shapes: Shapes = {f"{prefix}.{name}_layernorm.weight": (HIDDEN,) for name in ("input", "post_attention")}
    return shapes | mixer(prefix, kind, bias=bool(values.get("attention_bias"))) | feed_forward(prefix, values)


def tensors(values: Mapping[str, Any]) -> Shapes:
    """Every tensor of a checkpoint with one of the configs above, and its shape."""
    shapes: Shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    if not values.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (VOCABULARY, HIDDEN)
    for number, kind in enumerate(values["layer_types"]):
        shapes |= layer(f"model.layers.{number}", kind, values)
    if values["mtp_num_hidden_layers"]:
        shapes |= layer("mtp.layers.0", "full_attention", values)
        shapes |= {f"mtp.{name}.weight": (HIDDEN,) for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
        shapes["mtp.fc.weight"] = (HIDDEN, 2 * HIDDEN)
    return shapes


def config(values: Mapping[str, Any]) -> ModelConfig:
    return ModelConfig(values, {}, "config.json")


class TestQwenFamily(ModelFamilyContract):
    """Both kinds of mixer, dense and with experts."""

    # Single rows of these weights make rounding fifty times as large, in whatever way it comes in.
    tolerance: ClassVar[float] = 1e-3
    refused: ClassVar[Mapping[str, Any]] = {
        "hidden_act": "gelu",
        "attn_output_gate": False,
        "output_gate_type": "sigmoid",
        "mtp_num_hidden_layers": 2,
        "layer_types": ["full_attention"],
        "linear_num_key_heads": 3,
        "indexer_n_heads": 4,
    }

    @pytest.fixture
    def session(self, each_session: Session[Any]) -> Session[Any]:
        """Every backend."""
        return each_session

    @pytest.fixture
    def family(self) -> ModelFamily:
        """The Qwen family."""
        return QwenFamily()

    @pytest.fixture(params=CONFIGS)
    def checkpoint(self, request: pytest.FixtureRequest) -> TinyCheckpoint:
        """Random weights."""
        values = CONFIGS[request.param]
        return TinyCheckpoint(config(values), RandomTensors(tensors(values)))


# ---- the draft head ----------------------------------------------------------------------------------------


def test_a_draft_head_that_a_conversion_dropped_is_done_without(each_session: Session[Any]) -> None:
    """The config still tells of it; the model runs, and does not draft."""
    source = RandomTensors(tensors({**DENSE, "mtp_num_hidden_layers": 0}))
    assert load_decoder(QwenFamily(), config(DENSE), source, each_session.packer).draft is None


def test_a_draft_head_that_the_config_does_not_tell_of_is_left(each_session: Session[Any]) -> None:
    """Its tensors are no reason to refuse the checkpoint."""
    source = RandomTensors(tensors(DENSE))
    decoder = load_decoder(QwenFamily(), config({**DENSE, "mtp_num_hidden_layers": 0}), source, each_session.packer)
    assert decoder.draft is None


def copying(values: dict[str, Any]) -> tuple[ModelConfig, TensorSource]:
    """A model of one attention layer whose draft head is that layer over the embedded tokens, blind for hidden rows.

    Queries are keys, and so large that a row attends to itself and to rows of its own token. The head, which has not
    seen the first token, then says what the target says.
    """
    values = {**values, "num_hidden_layers": 1, "layer_types": ["full_attention"]}
    arrays = arrays_of(tensors(values))
    target, head = "model.layers.0.", "mtp.layers.0."
    keys = np.repeat(arrays[f"{target}self_attn.k_proj.weight"].reshape(KV_HEADS, HEAD_DIM, HIDDEN), 2, axis=0)
    queries = arrays[f"{target}self_attn.q_proj.weight"].reshape(HEADS, 2, HEAD_DIM, HIDDEN)
    queries[:, 0] = keys
    for name in "qk":
        arrays[f"{target}self_attn.{name}_norm.weight"] = np.full(HEAD_DIM, 11.0, np.float32)
    embedding = arrays["model.embed_tokens.weight"]
    embedding /= np.sqrt(np.mean(embedding**2, axis=1, keepdims=True))
    zeros = np.zeros(HIDDEN, np.float32)  # zero-centred
    arrays |= {f"mtp.{name}.weight": zeros for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    arrays["mtp.norm.weight"] = arrays["model.norm.weight"]
    arrays["mtp.fc.weight"] = np.eye(HIDDEN, 2 * HIDDEN, dtype=np.float32)
    arrays |= {f"{head}{name.removeprefix(target)}": each for name, each in arrays.items() if name.startswith(target)}
    return config(values), ArrayTensors(arrays)


def drafted(
    loaded: Loaded, session: Session[Any], tokens: tuple[int, ...]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The target's rows of all tokens but the last, and the draft head's logits of all but the first."""
    runner = loaded.runner()
    slot = runner.acquire()
    assert slot is not None
    output = runner.forward([Segment(slot, tokens[:-1], 0, want="all")])
    rows = session.numpy(output.hidden)
    runner.commit(slot, len(tokens) - 1)
    head = runner.draft([Segment(slot, tokens[1:], 0, want="all")], [HiddenRows(output, 0, len(tokens) - 1)])
    return rows, runner.logits(head, range(head.rows))


EITHER = pytest.mark.parametrize("values", [DENSE, MIXTURE], ids=["dense", "experts"])


@EITHER
def test_a_head_that_copies_the_target_drafts_perfectly(values: dict[str, Any], each_session: Session[Any]) -> None:
    """It says what the target says of the tokens behind the first, and every draft of it is kept."""
    loaded = Loaded(QwenFamily(), *copying(values), each_session)
    tokens = tuple(int(token) for token in np.random.default_rng(3).integers(2, VOCABULARY, 70))
    _, said = drafted(loaded, each_session, tokens)
    np.testing.assert_allclose(said, WAYS["at once"](loaded, tokens[1:]), rtol=0, atol=1e-4)
    serial = serial_reply(loaded, tokens[:37], 40)
    for ahead in (1, 3):
        reply = drafted_reply(loaded, tokens[:37], 40, ahead)
        assert reply.tokens == serial.tokens
        np.testing.assert_array_equal(reply.logits, serial.logits)
        # The first token is nobody's draft, and each step gives one that is not.
        assert reply.accepted == -(-39 // (ahead + 1)) * ahead


@EITHER
def test_a_head_joins_rows_and_tokens_as_its_weights_say(values: dict[str, Any], each_session: Session[Any]) -> None:
    """Row p of the target, behind its last norm, with token p + 1; held against the formula, its layer being silent."""
    arrays = arrays_of(tensors(values))
    arrays |= {
        name: np.zeros_like(each)
        for name, each in arrays.items()
        if name.startswith("mtp.layers") and name.endswith(("o_proj.weight", "down_proj.weight"))
    }

    def normed(x: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        unit: NDArray[np.float32] = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)
        return unit * (1 + arrays[f"mtp.{name}.weight"])

    tokens = tuple(range(2, 42))
    loaded = Loaded(QwenFamily(), config(values), ArrayTensors(arrays), each_session)
    rows, said = drafted(loaded, each_session, tokens)
    embedded = arrays["model.embed_tokens.weight"][list(tokens[1:])]
    sides = [normed(embedded, "pre_fc_norm_embedding"), normed(rows, "pre_fc_norm_hidden")]
    joined = normed(np.concatenate(sides, axis=1) @ arrays["mtp.fc.weight"].T, "norm")
    np.testing.assert_allclose(said, joined @ arrays["lm_head.weight"].T, rtol=0, atol=1e-4)


@EITHER
def test_a_reply_drafted_by_a_poor_head_is_the_serial_one_bit_for_bit(
    values: dict[str, Any], each_session: Session[Any]
) -> None:
    """Random weights, few drafts kept."""
    loaded = Loaded(QwenFamily(), config(values), RandomTensors(tensors(values)), each_session)
    prompt = tuple(int(token) for token in np.random.default_rng(4).integers(2, VOCABULARY, 37))
    serial = serial_reply(loaded, prompt, 30)
    for ahead in (1, 3):
        reply = drafted_reply(loaded, prompt, 30, ahead)
        assert reply.tokens == serial.tokens
        np.testing.assert_array_equal(reply.logits, serial.logits)
        assert reply.accepted < 29
