"""Tokenizers and chat templates from the metadata of GGUF files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken, Regex
from tokenizers.models import BPE
from tokenizers.normalizers import Normalizer, Prepend, Replace
from tokenizers.normalizers import Sequence as NormalizerSequence
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing

from tensorfold.checkpoint.gguf_metadata import GgufMetadata
from tensorfold.checkpoint.pretokenizers import CUTS
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer, Spelling, add_token
from tensorfold.contracts.chat import ChatTemplates
from tensorfold.errors import CheckpointDamaged, CheckpointUnsupported

__all__ = ["gguf_templates", "gguf_tokenizer"]

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
"""Values of `tokenizer.ggml.token_type`; 5 is unused and 6 a single byte."""

_NAMED: Final = ("bos", "eos", "unknown", "padding", "eot")
"""Metadata keys `tokenizer.ggml.{}_token_id` of tokens that templates may name."""
_TEMPLATE_NAMES: Final[Mapping[str, str]] = MappingProxyType({"unknown": "unk", "padding": "pad"})
"""Where their variable `{}_token` is called otherwise."""


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The tokens, whatever the model."""

    metadata: GgufMetadata
    tokens: Sequence[str]
    types: Sequence[int]

    @property
    def ids(self) -> dict[str, int]:
        """Of each spelling."""
        return {token: id for id, token in enumerate(self.tokens)}

    def added(self) -> list[AddedToken]:
        """Tokens that are found in a text before it is cut: control tokens, and those that a user defined."""
        return [
            AddedToken(token, normalized=False, special=type != _USER_DEFINED)
            for token, type in zip(self.tokens, self.types, strict=True)
            if type in (_UNKNOWN, _CONTROL, _USER_DEFINED)
        ]


def gguf_templates(metadata: GgufMetadata) -> ChatTemplates:
    """Chat templates, and the control tokens that they may name."""
    names = metadata.texts("tokenizer.chat_templates") or []
    sources = {name: metadata.text(f"tokenizer.chat_template.{name}") for name in names}
    tokens = metadata.texts("tokenizer.ggml.tokens") or []
    special: dict[str, str] = {}
    for name in _NAMED:
        token = metadata.natural(f"tokenizer.ggml.{name}_token_id")
        if token is not None and token < len(tokens):
            special[f"{_TEMPLATE_NAMES.get(name, name)}_token"] = tokens[token]
    return ChatTemplates(
        metadata.text("tokenizer.chat_template"),
        {name: source for name, source in sources.items() if source is not None},
        special,
    )


def gguf_tokenizer(metadata: GgufMetadata) -> CheckpointTokenizer:
    """The tokenizer of a GGUF file.

    Raises:
        CheckpointDamaged: the vocabulary contradicts itself.
        CheckpointUnsupported: it is of a kind that is not built; named.
    """
    tokens = metadata.texts("tokenizer.ggml.tokens")
    model = metadata.text("tokenizer.ggml.model")
    builder = None if model is None else _BUILDERS.get(model)
    if not tokens or builder is None:
        has = "has no tokens" if not tokens else f"has tokenizer.ggml.model {model!r}"
        raise CheckpointUnsupported(f"{metadata.path} {has}, and only {', '.join(_BUILDERS)} vocabularies are built")
    tokens = [token or f"[EMPTY_{id}]" for id, token in enumerate(tokens)]
    _check_distinct(metadata, tokens)
    types = metadata.numbers("tokenizer.ggml.token_type", len(tokens))
    vocabulary = _Vocabulary(metadata, tokens, [_NORMAL] * len(tokens) if types is None else types.tolist())
    return builder(vocabulary)


def _check_distinct(metadata: GgufMetadata, tokens: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for id, token in enumerate(tokens):
        if first.setdefault(token, id) != id:
            raise CheckpointDamaged(
                metadata.path, 0, f"tokens {first[token]} and {id} of the vocabulary are both {token!r}"
            )


# ---- byte-level BPE ----------------------------------------------------------------------------------------


def _byte_level(vocabulary: _Vocabulary) -> CheckpointTokenizer:
    metadata = vocabulary.metadata
    name = metadata.text("tokenizer.ggml.pre") or "default"
    if name not in CUTS:
        raise CheckpointUnsupported(
            f"{metadata.path} has tokenizer.ggml.pre {name!r}, and only {', '.join(CUTS)} are known;"
            " serve the Hugging Face folder of this model instead"
        )
    cut = CUTS[name]
    tokenizer = _bpe(vocabulary, merges=_told_merges(metadata), ignore_merges=cut.whole_words)
    normalizer = cut.normalizer()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = cut.pre_tokenizer()
    return _finished(tokenizer, vocabulary, "bytes", adds_bos=cut.adds_bos)


def _told_merges(metadata: GgufMetadata) -> list[tuple[str, str]]:
    merges = metadata.texts("tokenizer.ggml.merges") or []
    # A piece may begin with a blank, so the one that parts the two is looked for after it.
    ends = [merge.find(" ", 1) for merge in merges]
    if -1 in ends:
        raise CheckpointDamaged(metadata.path, 0, f"merge {ends.index(-1)} of the vocabulary does not name two pieces")
    return [(merge[:end], merge[end + 1 :]) for merge, end in zip(merges, ends, strict=True)]


# ---- sentencepiece BPE -------------------------------------------------------------------------------------


def _sentencepiece(vocabulary: _Vocabulary) -> CheckpointTokenizer:
    metadata = vocabulary.metadata
    if metadata.flag("tokenizer.ggml.remove_extra_whitespaces"):
        raise CheckpointUnsupported(f"{metadata.path} removes extra blanks before tokenizing, which is not done here")
    charsmap = metadata.plain("tokenizer.ggml.precompiled_charsmap")
    if charsmap:
        raise CheckpointUnsupported(f"{metadata.path} maps characters before tokenizing, which is not done here")
    scores = metadata.numbers("tokenizer.ggml.scores", len(vocabulary.tokens))
    if scores is None:
        raise CheckpointDamaged(metadata.path, 0, "a sentencepiece vocabulary has no tokenizer.ggml.scores")
    unknown = metadata.natural("tokenizer.ggml.unknown_token_id")
    tokenizer = _bpe(
        vocabulary,
        merges=_merges(vocabulary, scores.tolist()),
        byte_fallback=True,
        fuse_unk=True,
        unk_token=None if unknown is None or unknown >= len(vocabulary.tokens) else vocabulary.tokens[unknown],
    )
    steps: list[Normalizer] = [Replace(" ", "\u2581")]
    if metadata.flag("tokenizer.ggml.add_space_prefix") in (None, True):
        steps.insert(0, Prepend("\u2581"))
    tokenizer.normalizer = NormalizerSequence(steps)
    return _finished(tokenizer, vocabulary, "sentencepiece", adds_bos=True)


def _gemma4(vocabulary: _Vocabulary) -> CheckpointTokenizer:
    """Sentencepiece's pieces by the merges that the file tells; lines and line ends are cut apart before."""
    metadata = vocabulary.metadata
    merges = _told_merges(metadata)
    if not merges:
        raise CheckpointDamaged(metadata.path, 0, "a gemma4 vocabulary has no tokenizer.ggml.merges")
    tokenizer = _bpe(vocabulary, merges=merges, byte_fallback=True, fuse_unk=True)
    tokenizer.normalizer = Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = Split(Regex(r"[^\n]+|\n+"), behavior="isolated")
    merged = {left + right for left, right in merges}
    for token, type in zip(vocabulary.tokens, vocabulary.types, strict=True):
        # Runs of line ends are tokens whole, whether or not merges make them.
        if type == _NORMAL and len(token) > 1 and not token.strip("\n") and token not in merged:
            add_token(tokenizer, AddedToken(token, normalized=False, special=False))
    return _finished(tokenizer, vocabulary, "sentencepiece", adds_bos=True)


def _merges(vocabulary: _Vocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every way to put a normal piece together from two others, best pieces first.

    Sentencepiece merges the pair whose piece scores highest, whichever two it is made of.
    """
    normal = {
        token: id
        for id, (token, type) in enumerate(zip(vocabulary.tokens, vocabulary.types, strict=True))
        if type == _NORMAL
    }
    ranked = [
        (-scores[id], id, token[:at], token[at:])
        for token, id in normal.items()
        for at in range(1, len(token))
        if token[:at] in normal and token[at:] in normal
    ]
    return [(left, right) for _, _, left, right in sorted(ranked)]


# ---- both --------------------------------------------------------------------------------------------------


def _bpe(vocabulary: _Vocabulary, **options: Any) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer(BPE(vocab=vocabulary.ids, **options))
    except Exception as error:  # the library raises no narrower type
        raise CheckpointDamaged(vocabulary.metadata.path, 0, f"the vocabulary contradicts itself: {error}") from error


def _finished(
    tokenizer: tokenizers.Tokenizer, vocabulary: _Vocabulary, spelling: Spelling, *, adds_bos: bool
) -> CheckpointTokenizer:
    """With its control tokens, and with BOS and EOS around a text where the file wants them."""
    for added in vocabulary.added():
        add_token(tokenizer, added)
    metadata = vocabulary.metadata
    wanted = {
        "bos": metadata.flag("tokenizer.ggml.add_bos_token"),
        "eos": metadata.flag("tokenizer.ggml.add_eos_token"),
    }
    affixes: dict[str, int] = {}
    for name, default in (("bos", adds_bos), ("eos", False)):
        token = metadata.natural(f"tokenizer.ggml.{name}_token_id")
        if token is not None and token < len(vocabulary.tokens) and (default if wanted[name] is None else wanted[name]):
            affixes[name] = token
    if affixes:
        tokenizer.post_processor = TemplateProcessing(
            single=[each for each in ("bos", "$A", "eos") if each in affixes or each == "$A"],
            pair=None,
            special_tokens=[
                {"id": name, "ids": [token], "tokens": [vocabulary.tokens[token]]} for name, token in affixes.items()
            ],
        )
    return CheckpointTokenizer(tokenizer, spelling)


_BUILDERS: Final[Mapping[str, Callable[[_Vocabulary], CheckpointTokenizer]]] = MappingProxyType(
    {"gpt2": _byte_level, "llama": _sentencepiece, "gemma4": _gemma4}
)
"""By `tokenizer.ggml.model`."""
