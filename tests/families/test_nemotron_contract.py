"""The Nemotron family keeps the contract of families, on every backend, with and without its draft head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from tensorfold_model_nemotron.family import NemotronFamily

Shapes = dict[str, tuple[int, ...]]

HIDDEN, WIDTH, EXPERTS, EXPERT, SHARED_EXPERT, LATENT, VOCABULARY = 32, 40, 6, 12, 20, 18, 90
HEADS, KV_HEADS, HEAD_DIM = 4, 2, 8
MAMBA_HEADS, MAMBA_DIM, GROUPS, STATE, TAPS = 6, 5, 2, 7, 4
VALUES = MAMBA_HEADS * MAMBA_DIM
CHANNELS = VALUES + 2 * GROUPS * STATE

PLAIN: dict[str, Any] = {
    "model_type": "nemotron_h",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": WIDTH,
    "hybrid_override_pattern": "MEM*E-",
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "mamba_num_heads": MAMBA_HEADS,
    "mamba_head_dim": MAMBA_DIM,
    "n_groups": GROUPS,
    "ssm_state_size": STATE,
    "conv_kernel": TAPS,
    "n_routed_experts": EXPERTS,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": EXPERT,
    "moe_shared_expert_intermediate_size": SHARED_EXPERT,
    "routed_scaling_factor": 2.5,
    "max_position_embeddings": 256,
    "eos_token_id": 1,
}
DRAFTING = {**PLAIN, "num_nextn_predict_layers": 1}
LATENT_EXPERTS = {
    **PLAIN,
    "moe_latent_size": LATENT,
    "mlp_bias": True,
    "use_bias": True,
    "use_conv_bias": False,
    "time_step_limit": [0.2, 1.5],
}
KINDS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}


def linear(prefix: str, rows: int, columns: int, *, bias: bool) -> Shapes:
    """A matrix, and a bias where there is one."""
    return {f"{prefix}.weight": (rows, columns)} | ({f"{prefix}.bias": (rows,)} if bias else {})


def block(prefix: str, kind: str, values: Mapping[str, Any]) -> Shapes:
    """One layer."""
    mixer, bias = f"{prefix}.mixer", bool(values.get("mlp_bias"))
    shapes: Shapes = {f"{prefix}.norm.weight": (HIDDEN,)}

    def feed_forward(name: str, width: int) -> Shapes:
        return linear(f"{name}.up_proj", width, HIDDEN, bias=bias) | linear(
            f"{name}.down_proj", HIDDEN, width, bias=bias
        )

    if kind == "mamba":
        projected = bool(values.get("use_bias"))
        shapes |= linear(f"{mixer}.in_proj", VALUES + CHANNELS + MAMBA_HEADS, HIDDEN, bias=projected)
        shapes |= linear(f"{mixer}.out_proj", HIDDEN, VALUES, bias=projected)
        shapes |= {f"{mixer}.{name}": (MAMBA_HEADS,) for name in ("A_log", "D", "dt_bias")}
        shapes |= {f"{mixer}.conv1d.weight": (CHANNELS, 1, TAPS), f"{mixer}.norm.weight": (VALUES,)}
        if values.get("use_conv_bias", True):
            shapes[f"{mixer}.conv1d.bias"] = (CHANNELS,)
    elif kind == "attention":
        rows = {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM}
        shapes |= {f"{mixer}.{name}_proj.weight": (size, HIDDEN) for name, size in rows.items()}
        shapes[f"{mixer}.o_proj.weight"] = (HIDDEN, HEADS * HEAD_DIM)
    elif kind == "mlp":
        shapes |= feed_forward(mixer, WIDTH)
    else:
        inner = values.get("moe_latent_size", HIDDEN)
        shapes |= {f"{mixer}.gate.weight": (EXPERTS, HIDDEN), f"{mixer}.gate.e_score_correction_bias": (EXPERTS,)}
        shapes |= feed_forward(f"{mixer}.shared_experts", SHARED_EXPERT)
        for expert in range(EXPERTS):
            shapes[f"{mixer}.experts.{expert}.up_proj.weight"] = (EXPERT, inner)
            shapes[f"{mixer}.experts.{expert}.down_proj.weight"] = (inner, EXPERT)
        if inner != HIDDEN:
            shapes |= linear(f"{mixer}.fc1_latent_proj", inner, HIDDEN, bias=bias)
            shapes |= linear(f"{mixer}.fc2_latent_proj", HIDDEN, inner, bias=bias)
    return shapes


def tensors(values: Mapping[str, Any]) -> Shapes:
    """Every tensor of a checkpoint with one of the configs above, and its shape."""
    shapes: Shapes = {
        "backbone.embeddings.weight": (VOCABULARY, HIDDEN),
        "backbone.norm_f.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    for number, letter in enumerate(values["hybrid_override_pattern"]):
        shapes |= block(f"backbone.layers.{number}", KINDS[letter], values)
    if values.get("num_nextn_predict_layers"):
        kinds: Sequence[str] = values.get("mtp_layers_block_type", ["attention", "moe"])
        for number, kind in enumerate(kinds):
            shapes |= block(f"mtp.layers.{number}", kind, values)
        shapes |= {f"mtp.layers.0.{name}.weight": (HIDDEN,) for name in ("enorm", "hnorm")}
        shapes["mtp.layers.0.eh_proj.weight"] = (HIDDEN, 2 * HIDDEN)
        shapes[f"mtp.layers.{len(kinds) - 1}.final_layernorm.weight"] = (HIDDEN,)
    return shapes


def config(values: Mapping[str, Any]) -> ModelConfig:
    return ModelConfig(values, {}, "config.json")


CONFIGS: dict[str, dict[str, Any]] = {
    "every kind of block": PLAIN,
    "with a draft head": DRAFTING,
    "with latent experts, biases and bounded steps": LATENT_EXPERTS,
}


class TestNemotronFamily(ModelFamilyContract):
    """Every kind of block."""

    refused: ClassVar[Mapping[str, Any]] = {
        "mlp_hidden_act": "gelu",
        "mamba_hidden_act": "gelu",
        "attention_bias": True,
        "tie_word_embeddings": True,
        "num_nextn_predict_layers": 2,
        "hybrid_override_pattern": "MX",
        "n_groups": 4,
        "topk_group": 2,
        "time_step_limit": [0.1],
    }

    @pytest.fixture
    def session(self, each_session: Session[Any]) -> Session[Any]:
        """Every backend."""
        return each_session

    @pytest.fixture
    def family(self) -> ModelFamily:
        """The Nemotron family."""
        return NemotronFamily()

    @pytest.fixture(params=CONFIGS)
    def checkpoint(self, request: pytest.FixtureRequest) -> TinyCheckpoint:
        """Random weights."""
        values = CONFIGS[request.param]
        return TinyCheckpoint(config(values), RandomTensors(tensors(values)))


# ---- the draft head ----------------------------------------------------------------------------------------


def test_a_draft_head_that_a_conversion_dropped_is_done_without(each_session: Session[Any]) -> None:
    """The config still tells of it; the model runs, and does not draft."""
    decoder = load_decoder(NemotronFamily(), config(DRAFTING), RandomTensors(tensors(PLAIN)), each_session.packer)
    assert decoder.draft is None


def test_a_draft_head_that_the_config_does_not_tell_of_is_left(each_session: Session[Any]) -> None:
    """Its tensors are no reason to refuse the checkpoint."""
    decoder = load_decoder(NemotronFamily(), config(PLAIN), RandomTensors(tensors(DRAFTING)), each_session.packer)
    assert decoder.draft is None


def copying() -> tuple[ModelConfig, TensorSource]:
    """A model whose draft head has the same layers over the embedded tokens, and is blind for hidden rows.

    Token 2 is embedded as zeros, of which no layer makes anything: behind it, the target says what the head says,
    which has not seen it.
    """
    values = {
        **DRAFTING,
        "hybrid_override_pattern": "MEM",
        "mtp_layers_block_type": ["mamba", "moe", "mamba"],
        "use_conv_bias": False,
    }
    arrays = arrays_of(tensors(values))
    embedding = arrays["backbone.embeddings.weight"]
    embedding /= np.sqrt(np.mean(embedding**2, axis=1, keepdims=True))
    embedding[2] = 0
    ones = np.ones(HIDDEN, np.float32)
    arrays |= {f"mtp.layers.0.{name}.weight": ones for name in ("enorm", "hnorm")}
    arrays["mtp.layers.2.final_layernorm.weight"] = arrays["backbone.norm_f.weight"]
    arrays["mtp.layers.0.eh_proj.weight"] = np.eye(HIDDEN, 2 * HIDDEN, dtype=np.float32)
    layers = {name: each for name, each in arrays.items() if name.startswith("backbone.layers")}
    arrays |= {name.replace("backbone.", "mtp."): each for name, each in layers.items()}
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


def test_a_head_that_copies_the_target_drafts_perfectly(each_session: Session[Any]) -> None:
    """It says what the target says of the tokens behind the first, and every draft of it is kept."""
    loaded = Loaded(NemotronFamily(), *copying(), each_session)
    others = np.random.default_rng(3).integers(3, VOCABULARY, 69)
    tokens = (2, *(int(token) for token in others))
    _, said = drafted(loaded, each_session, tokens)
    np.testing.assert_allclose(said, WAYS["at once"](loaded, tokens[1:]), rtol=0, atol=1e-4)
    serial = serial_reply(loaded, tokens[:37], 40)
    for ahead in (1, 3):
        reply = drafted_reply(loaded, tokens[:37], 40, ahead)
        assert reply.tokens == serial.tokens
        np.testing.assert_array_equal(reply.logits, serial.logits)
        # The first token is nobody's draft, and each step gives one that is not.
        assert reply.accepted == -(-39 // (ahead + 1)) * ahead


def test_a_head_joins_rows_and_tokens_as_its_weights_say(each_session: Session[Any]) -> None:
    """Row p of the target, behind its last norm, with token p + 1; held against the formula, its layers being silent."""
    arrays = arrays_of(tensors(DRAFTING))
    arrays |= {
        name: np.zeros_like(each)
        for name, each in arrays.items()
        if name.startswith("mtp.layers") and name.endswith(("o_proj.weight", "down_proj.weight"))
    }

    def normed(x: NDArray[np.float32], name: str) -> NDArray[np.float32]:
        unit: NDArray[np.float32] = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5)
        return unit * arrays[f"mtp.layers.{name}.weight"]

    tokens = tuple(range(2, 42))
    loaded = Loaded(NemotronFamily(), config(DRAFTING), ArrayTensors(arrays), each_session)
    rows, said = drafted(loaded, each_session, tokens)
    embedded = arrays["backbone.embeddings.weight"][list(tokens[1:])]
    sides = [normed(embedded, "0.enorm"), normed(rows, "0.hnorm")]
    joined = normed(np.concatenate(sides, axis=1) @ arrays["mtp.layers.0.eh_proj.weight"].T, "1.final_layernorm")
    np.testing.assert_allclose(said, joined @ arrays["lm_head.weight"].T, rtol=0, atol=1e-4)


def test_a_reply_drafted_by_a_poor_head_is_the_serial_one_bit_for_bit(each_session: Session[Any]) -> None:
    """Random weights, few drafts kept."""
    loaded = Loaded(NemotronFamily(), config(DRAFTING), RandomTensors(tensors(DRAFTING)), each_session)
    prompt = tuple(int(token) for token in np.random.default_rng(4).integers(2, VOCABULARY, 37))
    serial = serial_reply(loaded, prompt, 30)
    for ahead in (1, 3):
        reply = drafted_reply(loaded, prompt, 30, ahead)
        assert reply.tokens == serial.tokens
        np.testing.assert_array_equal(reply.logits, serial.logits)
        assert reply.accepted < 29
