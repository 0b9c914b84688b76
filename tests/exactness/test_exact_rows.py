"""A row's bits do not depend on its company, its history or the threads, at a real model's widths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.declaring import declared_tensors
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.family import Decoder
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.step import Segment
from tensorfold.testing.coded_tensors import CodedTensors
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold_model_llama.family import LlamaFamily

VOCABULARY = 1000
CONFIG = ModelConfig(
    {
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 2,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 1024,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "eos_token_id": 1,
    },
    {},
    "config.json",
)
PROMPTS = (300, 129, 64, 40, 7, 1)
"""Prompts that end within a page, on its border, and within the first."""
REPLY = 13

Logits = NDArray[np.float32]


def tensors() -> RandomTensors:
    """SmolLM2-135M's widths, two layers deep."""
    return RandomTensors(declared_tensors(LlamaFamily(), CONFIG))


class Model:
    """The model on a session, with a fresh runner for each way of running it."""

    def __init__(self, session: Session[Any], bits: int | None) -> None:
        self.session = session
        self.geometry = LlamaFamily().geometry(CONFIG)
        source = CodedTensors(tensors(), lambda _: bits)
        self.decoder: Decoder[Any] = load_decoder(LlamaFamily(), CONFIG, source, self.session.packer)
        self.serial = self.replies([[number] for number in range(len(PROMPTS))], 1)

    def runner(self) -> Runner[Any]:
        """A runner with a lane for every prompt."""
        plan = plan_memory(self.geometry, self.session, lanes=len(PROMPTS), context=512, budget=1 << 28)
        return Runner(
            self.decoder, self.session, self.geometry, lanes=len(PROMPTS), pages=plan.pages, identity="widths"
        )

    def replies(self, companies: list[list[int]], rows: int, wrong: int = 0) -> list[Logits]:
        """Each prompt's reply logits, `[REPLY, V]`.

        Sequences of one company share every step, `rows` tokens each, with `wrong` more that are dropped.
        """
        runner = self.runner()
        logits: list[Logits] = [np.empty((0, VOCABULARY), np.float32)] * len(PROMPTS)
        for company in companies:
            slots = {number: self.prefilled(runner, number) for number in company}
            for done in range(0, REPLY, rows):
                kept = min(rows, REPLY - done)
                segments = [
                    Segment(
                        slots[number],
                        (*_tokens(number)[PROMPTS[number] + done :][:kept], *_tokens(99)[:wrong]),
                        PROMPTS[number] + done,
                        want="all",
                    )
                    for number in company
                ]
                output = runner.forward(segments)
                for number, (first, last) in zip(company, output.bounds, strict=True):
                    got = runner.logits(output, range(first, last))[:kept]
                    logits[number] = np.concatenate([logits[number], got])
                for each in segments:
                    runner.commit(each.slot, each.start + kept)
            for slot in slots.values():
                runner.release(slot)
        return logits

    @staticmethod
    def prefilled(runner: Runner[Any], number: int) -> int:
        """A slot that holds one of the prompts."""
        slot = runner.acquire()
        assert slot is not None
        runner.forward([Segment(slot, _tokens(number)[: PROMPTS[number]], 0, want="none", kind="chunk")])
        runner.commit(slot, PROMPTS[number])
        return slot


def _tokens(number: int) -> tuple[int, ...]:
    return tuple(int(token) for token in np.random.default_rng(number).integers(0, VOCABULARY, 512))


def on_torch(dtype: str) -> Session[Any]:
    """In a type that a CPU computes in."""
    from tensorfold_backend_torch import TorchBackend

    return TorchBackend().open(BackendSettings(device="cpu", dtype=dtype, threads=1))


def on_mlx(dtype: str) -> Session[Any]:
    """The same."""
    from tensorfold_backend_mlx import MlxBackend

    pytest.importorskip("mlx.core")
    return MlxBackend().open(BackendSettings(device="cpu", dtype=dtype))


# MLX is slow on a CPU; tests/backends has what runs often.
MLX = (pytest.mark.mlx, pytest.mark.slow)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((on_torch, "float32", None), id="torch-float32", marks=pytest.mark.torch),
        pytest.param((on_torch, "bfloat16", None), id="torch-bfloat16", marks=pytest.mark.torch),
        pytest.param((on_mlx, "float32", None), id="mlx-float32", marks=MLX),
        pytest.param((on_mlx, "float32", 4), id="mlx-float32-codes", marks=MLX),
    ],
)
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    """In the types that a CPU computes in, and with codes for weights."""
    start, dtype, bits = request.param
    made = Model(start(dtype), bits)
    yield made
    made.session.close()


def same(got: list[Logits], expected: list[Logits]) -> None:
    """Bit for bit."""
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert one.tobytes() == other.tobytes(), f"prompt {number} differs by {np.abs(one - other).max()}"


EVERYBODY = list(range(len(PROMPTS)))


def test_replies_in_company_are_replies_alone(model: Model) -> None:
    """Six sequences in one step, in either order, and in companies of two and three."""
    same(model.replies([EVERYBODY], 1), model.serial)
    same(model.replies([EVERYBODY[::-1]], 1), model.serial)
    same(model.replies([[4, 0], [1, 5], [3, 2]], 1), model.serial)
    same(model.replies([[5, 0, 3], [2, 4, 1]], 1), model.serial)


@pytest.mark.parametrize(("rows", "wrong"), [(2, 0), (3, 2), (5, 1), (8, 0), (13, 4)])
def test_drafted_replies_are_serial_replies(model: Model, rows: int, wrong: int) -> None:
    """Several rows of a sequence at once, with drafts that are dropped, alone and beside others."""
    same(model.replies([[number] for number in EVERYBODY], rows, wrong), model.serial)
    same(model.replies([EVERYBODY], rows, wrong), model.serial)


@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_no_bit(model: Model, threads: int) -> None:
    """Chunks and rows alike; on torch, whose number of threads can be changed."""
    torch = pytest.importorskip("torch")
    if not isinstance(model.session.array(np.zeros(1, np.float32)), torch.Tensor):
        pytest.skip("this backend has one thread")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        got = model.replies([[0, 4]], 3)
    finally:
        torch.set_num_threads(before)
    same([got[0], got[4]], [model.serial[0], model.serial[4]])


def test_every_count_of_rows_from_one_to_thirty_three_gives_the_same_bits(model: Model) -> None:
    """A window of any width, alone and beside a second sequence, against single steps."""
    most = 33
    runner = model.runner()
    first, second = (model.prefilled(runner, number) for number in (1, 4))
    tokens, other = _tokens(1)[PROMPTS[1] :][:most], _tokens(4)[PROMPTS[4] :][:3]
    serial = model.runner()
    slot = model.prefilled(serial, 1)
    expected: list[Logits] = []
    for place, token in enumerate(tokens):
        output = serial.forward([Segment(slot, (token,), PROMPTS[1] + place)])
        expected.append(serial.logits(output, [0]))
        serial.commit(slot, PROMPTS[1] + place + 1)
    rows = np.concatenate(expected)
    for count in range(1, most + 1):
        wide = Segment(first, tokens[:count], PROMPTS[1], want="all")
        beside = Segment(second, other, PROMPTS[4], want="all")
        for segments in ([wide], [wide, beside], [beside, wide]):
            output = runner.forward(segments)
            start, end = output.bounds[segments.index(wide)]
            got = runner.logits(output, range(start, end))
            assert got.tobytes() == rows[:count].tobytes(), f"{count} rows, {len(segments)} sequences"
            for each in segments:
                runner.commit(each.slot, each.start)
