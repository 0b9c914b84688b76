"""On the cpu backend a row's bits do not depend on its company, its history, the threads, or chunks, at a real model's
widths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.compute.declaring import declared_tensors
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.step import Kind, Segment
from tensorfold.testing.random_tensors import RandomTensors
from tensorfold_backend_cpu import CpuBackend
from tensorfold_backend_cpu.blocks import FusedLayer
from tensorfold_model_llama.family import LlamaFamily

VOCABULARY, LAYERS = 600, 2
WIDTHS: dict[str, dict[str, Any]] = {
    "llama": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    },
    # Norms of heads, seven queries a key, a window in the second layer, widths that are no multiple of 32.
    "qwen3": {
        "hidden_size": 280,
        "intermediate_size": 360,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "head_dim": 20,
        "use_sliding_window": True,
        "sliding_window": 100,
        "max_window_layers": 1,
    },
}
PROMPTS = (300, 129, 64, 7)
"""Lengths that end within a page, on its border, and within the first."""
REPLY = 33

Logits = NDArray[np.float32]


def config(name: str) -> ModelConfig:
    """Two layers of a model's widths."""
    values = {
        "model_type": name,
        "vocab_size": VOCABULARY,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 1024,
        "eos_token_id": 1,
        **WIDTHS[name],
    }
    return ModelConfig(values, {}, f"{name}/config.json")


def tensors(name: str) -> RandomTensors:
    """Random weights for it."""
    return RandomTensors(declared_tensors(LlamaFamily(), config(name)))


def tokens(number: int) -> tuple[int, ...]:
    """A sequence."""
    return tuple(int(token) for token in np.random.default_rng(number).integers(0, VOCABULARY, 512))


class Model:
    """A model on so many threads."""

    def __init__(self, name: str, *, threads: int = 2, weights: str | None = None, fused: bool = True) -> None:
        self.session = CpuBackend().open(BackendSettings(threads=threads, weights=weights))
        self.geometry = LlamaFamily().geometry(config(name))
        with pytest.MonkeyPatch.context() as patch:
            if not fused:
                patch.setattr(type(self.session.packer), "block", lambda packer, block: block)
            self.decoder: Any = load_decoder(LlamaFamily(), config(name), tensors(name), self.session.packer)
        layers: Any = self.decoder
        assert isinstance(layers.layers[0], FusedLayer) == fused

    def runner(self) -> Runner[Any]:
        """A lane for every prompt."""
        plan = plan_memory(self.geometry, self.session, lanes=len(PROMPTS), context=512, budget=1 << 28)
        return Runner(
            self.decoder, self.session, self.geometry, lanes=len(PROMPTS), pages=plan.pages, identity="widths"
        )

    def replies(
        self, company: Sequence[int], rows: int, *, wrong: int = 0, chunks: Sequence[int] = (512,), kind: Kind = "chunk"
    ) -> list[Logits]:
        """Each prompt's logits of its last row and of the reply's rows, `[1 + REPLY, V]`.

        Sequences of the company share every step, `rows` tokens each, with `wrong` more that are dropped.
        """
        runner = self.runner()
        slots: dict[int, int] = {}
        logits: dict[int, Logits] = {}
        for number in company:
            slots[number] = runner.acquire() or 0
            logits[number] = self._prefilled(runner, slots[number], number, chunks, kind)
        for done in range(0, REPLY, rows):
            kept = min(rows, REPLY - done)
            segments = [
                Segment(
                    slots[number],
                    (*tokens(number)[PROMPTS[number] + done :][:kept], *tokens(99)[:wrong]),
                    PROMPTS[number] + done,
                    want="all",
                )
                for number in company
            ]
            output = runner.forward(segments)
            for number, (first, last) in zip(company, output.bounds, strict=True):
                logits[number] = np.concatenate([logits[number], runner.logits(output, range(first, last))[:kept]])
            for each in segments:
                runner.commit(each.slot, each.start + kept)
        return [logits[number] for number in company]

    @staticmethod
    def _prefilled(runner: Runner[Any], slot: int, number: int, chunks: Sequence[int], kind: Kind) -> Logits:
        done, step = 0, 0
        while True:
            part = tokens(number)[done : min(PROMPTS[number], done + chunks[min(step, len(chunks) - 1)])]
            output = runner.forward([Segment(slot, part, done, kind=kind)])
            logits = runner.logits(output, [0])
            done, step = done + len(part), step + 1
            runner.commit(slot, done)
            if done == PROMPTS[number]:
                return logits


@pytest.fixture(scope="module", params=[("llama", "auto"), ("qwen3", "int4"), ("qwen3", "exact")], ids=str)
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A model, and the treatment of its weights."""
    named: tuple[str, str] = request.param
    return named


@pytest.fixture(scope="module")
def model(case: tuple[str, str]) -> Iterator[Model]:
    """On two threads."""
    made = Model(case[0], weights=case[1])
    yield made
    made.session.close()


@pytest.fixture(scope="module")
def serial(model: Model) -> list[Logits]:
    """Every prompt alone, a row at a time."""
    return [model.replies([number], 1)[0] for number in range(len(PROMPTS))]


def same(got: Sequence[Logits], expected: Sequence[Logits]) -> None:
    """Bit for bit."""
    for number, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert one.tobytes() == other.tobytes(), f"reply {number} differs by {np.abs(one - other).max()}"


def test_replies_in_company_are_replies_alone(model: Model, serial: list[Logits]) -> None:
    """Four sequences in one step, in either order."""
    same(model.replies([0, 1, 2, 3], 1), serial)
    same(model.replies([3, 2, 1, 0], 1)[::-1], serial)


@pytest.mark.parametrize("rows", [2, 3, 5, 8, 9, 17, 33])
def test_any_number_of_rows_has_the_bits_of_one(model: Model, serial: list[Logits], rows: int) -> None:
    """Drafts that are right and drafts that are dropped, alone and beside others."""
    same(model.replies([0], rows), serial[:1])
    same(model.replies([3, 0], rows, wrong=rows % 4), [serial[3], serial[0]])


def test_every_number_of_rows_has_the_bits_of_one(model: Model, serial: list[Logits]) -> None:
    """From 1 to 33 rows in the first step after a prompt."""
    runner = model.runner()
    slot = runner.acquire()
    assert slot is not None
    Model._prefilled(runner, slot, 1, (512,), "chunk")
    for rows in range(1, 34):
        output = runner.forward([Segment(slot, tokens(1)[PROMPTS[1] :][:rows], PROMPTS[1], want="all")])
        same([runner.logits(output, range(rows))], [serial[1][1 : rows + 1]])
        runner.commit(slot, PROMPTS[1])


def test_chunks_have_the_bits_of_rows(model: Model, serial: list[Logits]) -> None:
    """A prompt in chunks of any size, or as rows, leaves the same state."""
    assert model.session.chunk_equals_rows(model.geometry)
    same(model.replies([0], 1, chunks=(7, 1, 130)), serial[:1])
    same(model.replies([0, 2], 4, chunks=(64,), kind="rows"), [serial[0], serial[2]])


@pytest.mark.parametrize("threads", [1, 3])
def test_the_number_of_threads_changes_no_bit(case: tuple[str, str], serial: list[Logits], threads: int) -> None:
    """Chunks and rows alike."""
    other = Model(case[0], threads=threads, weights=case[1])
    same(other.replies([0, 3], 3), [serial[0], serial[3]])
    other.session.close()


def test_a_layer_as_one_list_of_calls_has_the_bits_of_its_operations(
    case: tuple[str, str], serial: list[Logits]
) -> None:
    """What is fused is scheduling, not arithmetic."""
    plain = Model(case[0], weights=case[1], fused=False)
    same(plain.replies([0, 1], 2, wrong=1), serial[:2])
    plain.session.close()
