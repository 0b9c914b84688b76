"""How byte-level vocabularies cut text into words before they merge, by the name that GGUF files give it.

The patterns are those of the models' own tokenizer.json files; a name that is not here is refused, since a wrong cut
gives other tokens without a sign of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tokenizers import Regex
from tokenizers.normalizers import NFC, Normalizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

__all__ = ["CUTS", "Cut"]


@dataclass(frozen=True, slots=True)
class Cut:
    """One way to cut text into words."""

    pattern: str | None = None
    """What a word is; None: as GPT-2 has it."""
    digits: bool = False
    """Every digit is a word of its own, before anything else."""
    nfc: bool = False
    """Text is composed (NFC) first."""
    whole_words: bool = False
    """A word that is in the vocabulary is one token, whatever the merges say."""
    adds_bos: bool = False
    """Whether a text begins with BOS when the file does not say."""

    def normalizer(self) -> Normalizer | None:
        """What is done to the text first."""
        return NFC() if self.nfc else None

    def pre_tokenizer(self) -> PreTokenizer:
        """The cut itself, down to bytes."""
        steps: list[PreTokenizer] = [Digits(individual_digits=True)] if self.digits else []
        if self.pattern is not None:
            steps.append(Split(Regex(self.pattern), behavior="isolated"))
        steps.append(ByteLevel(add_prefix_space=False, use_regex=self.pattern is None))
        return steps[0] if len(steps) == 1 else Sequence(steps)


_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER: Final = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER: Final = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _words(numbers: str, letter: str = r"\p{L}") -> str:
    """Contractions, letters with one sign before them, numbers, signs, line ends, blanks."""
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letter}+|{numbers}"
        rf"| ?[^\s{letter.strip('[]')}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


def _cased() -> str:
    """Words that end where an upper-case letter begins, and single digits."""
    before = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{before}{_UPPER}*{_LOWER}+|{before}{_UPPER}+{_LOWER}*|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_GPT2: Final = Cut()
_STARCODER: Final = Cut(digits=True)
_LLAMA3: Final = Cut(_words(r"\p{N}{1,3}"), whole_words=True, adds_bos=True)
_QWEN2: Final = Cut(_words(r"\p{N}"), nfc=True)

CUTS: Final[Mapping[str, Cut]] = MappingProxyType(
    {
        "default": _GPT2,
        "gpt-2": _GPT2,
        "gpt2": _GPT2,
        "smollm": _STARCODER,
        "starcoder": _STARCODER,
        "refact": _STARCODER,
        "llama-bpe": _LLAMA3,
        "llama3": _LLAMA3,
        "llama-v3": _LLAMA3,
        "qwen2": _QWEN2,
        "qwen35": Cut(_words(r"\p{N}", r"[\p{L}\p{M}]"), nfc=True),
        "tekken": Cut(_cased(), whole_words=True, adds_bos=True),
    }
)
"""By `tokenizer.ggml.pre`; `default` is also what a file without the key has."""
