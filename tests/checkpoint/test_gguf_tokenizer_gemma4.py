"""Gemma 4's vocabulary in GGUF files: sentencepiece's pieces, put together by the merges that the file tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensorfold.checkpoint.gguf_metadata import GgufMetadata, GgufValue
from tensorfold.checkpoint.gguf_tokenizer import gguf_tokenizer
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer
from tensorfold.errors import CheckpointDamaged

CONTROL = ["<pad>", "<eos>", "<bos>", "<|turn>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
PIECES = ["▁", "a", "b", "c", "\n", "ab", "▁ab", "abc", "\n\n", "\n\n\n"]
MERGES = ["a b", "▁ ab", "ab c", "\n \n"]
TOKENS = [*CONTROL, *BYTES, *PIECES]


def built(**changes: GgufValue) -> CheckpointTokenizer:
    types = np.array([3] * 3 + [4] + [6] * 256 + [1] * len(PIECES), np.int32)
    values: dict[str, GgufValue] = {
        "model": "gemma4",
        "tokens": TOKENS,
        "token_type": types,
        "merges": MERGES,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "add_bos_token": True,
        **changes,
    }
    return gguf_tokenizer(
        GgufMetadata(Path("a.gguf"), {f"tokenizer.ggml.{key}": value for key, value in values.items()})
    )


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("ab abc", ["ab", "▁ab", "c"]),
        (" ab", ["▁ab"]),
        ("a\nb", ["a", "\n", "b"]),
        ("ab\n\nab", ["ab", "\n\n", "ab"]),
        ("\n\n\n", ["\n\n\n"]),
        ("é", ["<0xC3>", "<0xA9>"]),
        ("<|turn>a", ["<|turn>", "a"]),
    ],
)
def test_text_is_cut_at_line_ends_and_merged_by_rank(text: str, pieces: list[str]) -> None:
    """Blanks are pieces' beginnings; a run of line ends is one token, merged or not; what has no piece is bytes."""
    tokenizer = built()
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special=True)
    assert [TOKENS[token] for token in ids] == pieces
    assert b"".join(tokenizer.token_bytes(token) for token in ids) == text.encode()
    assert tokenizer.encode(text, add_special_tokens=True, parse_special=True) == [2, *ids]


def test_a_vocabulary_without_merges_is_refused() -> None:
    with pytest.raises(CheckpointDamaged, match=r"no tokenizer\.ggml\.merges"):
        built(merges=[])
