"""Tiny checkpoints are real ones: transformers loads them, and their replies are lively."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorfold.checkpoint.folder import FolderCheckpoint
from tensorfold.testing.tiny import TINY_MODELS, tiny_weights, write_tiny
from tensorfold.testing.tiny_tokenizer import TINY_VOCABULARY


@pytest.mark.parametrize("name", TINY_MODELS)
def test_transformers_loads_a_tiny_checkpoint_whole_and_its_reply_varies(tmp_path: Path, name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = write_tiny(tmp_path, TINY_MODELS[name])
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.arange(40)[None] % TINY_VOCABULARY
    with torch.no_grad():
        logits = model(ids).logits[0]
        reply = model.generate(ids, do_sample=False, max_new_tokens=24, eos_token_id=None, pad_token_id=0)[0, 40:]
    assert 0.5 < float(logits.std()) < 4
    assert len(set(reply.tolist())) > 8


def test_a_seed_gives_the_same_weights_and_another_gives_others() -> None:
    one, same = tiny_weights(TINY_MODELS["llama"]), tiny_weights(TINY_MODELS["llama"])
    other = tiny_weights(TINY_MODELS["mistral"])
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["lm_head.weight"], other["lm_head.weight"])


def test_half_precision_folders_and_shards_hold_the_same_values_rounded(tmp_path: Path) -> None:
    exact = tiny_weights(TINY_MODELS["llama"])
    rounded = FolderCheckpoint(write_tiny(tmp_path, TINY_MODELS["llama"], dtype="BF16", shards=2))
    for name, values in exact.items():
        assert np.allclose(rounded.read(name).f32(), values, rtol=2**-8, atol=0)
