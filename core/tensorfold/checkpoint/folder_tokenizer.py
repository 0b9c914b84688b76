"""The tokenizer of a Hugging Face folder."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, Final

import tokenizers
from tokenizers import AddedToken

from tensorfold.checkpoint.json_files import read_object, read_text
from tensorfold.checkpoint.tokenizer import CheckpointTokenizer, Spelling, add_token
from tensorfold.errors import CheckpointDamaged, CheckpointUnsupported

__all__ = ["folder_tokenizer"]

MAX_TOKENIZER: Final = 256 << 20
"""The longest tokenizer.json, in bytes; vocabularies of 260,000 tokens take up to 35 MB."""
_CONVERTED: Final = ("tokenizer.model", "vocab.json", "*.tiktoken", "tiktoken.model")
"""What `transformers` makes a tokenizer of."""
_INSTALL: Final = "pip install transformers sentencepiece protobuf tiktoken"


def folder_tokenizer(folder: Path) -> CheckpointTokenizer:
    """From tokenizer.json, else from older files through `transformers`.

    Raises:
        CheckpointDamaged: a file is corrupt.
        CheckpointUnsupported: there is no tokenizer, or it is of a kind that is not read.
    """
    path = folder / "tokenizer.json"
    tokenizer = _parsed(path) if path.exists() else _converted(folder)
    config = folder / "tokenizer_config.json"
    _add_declared(tokenizer, config, read_object(config))
    return CheckpointTokenizer(tokenizer, _spelling(tokenizer, folder))


def _parsed(path: Path) -> tokenizers.Tokenizer:
    text = read_text(path, MAX_TOKENIZER)
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises no narrower type
        raise CheckpointDamaged(path, 0, f"not a tokenizer: {error}") from error


def _converted(folder: Path) -> tokenizers.Tokenizer:
    if not any(next(folder.glob(pattern), None) for pattern in _CONVERTED):
        raise CheckpointUnsupported(f"{folder} has no tokenizer: neither tokenizer.json nor {', '.join(_CONVERTED)}")
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise CheckpointUnsupported(
            f"{folder} has no tokenizer.json, and its older files are converted by transformers, which is not"
            f" installed: {_INSTALL}"
        ) from error
    try:
        converted: Any = transformers.AutoTokenizer.from_pretrained(folder, use_fast=True, local_files_only=True)
        return tokenizers.Tokenizer.from_str(converted.backend_tokenizer.to_str())
    except Exception as error:  # whatever a converter meets in a file
        raise CheckpointUnsupported(
            f"transformers cannot convert the tokenizer of {folder}: {error}. It needs further packages: {_INSTALL}"
        ) from error


def _add_declared(tokenizer: tokenizers.Tokenizer, path: Path, config: dict[str, Any]) -> None:
    """Added tokens that tokenizer_config.json declares and tokenizer.json does not have, as transformers adds them."""
    declared: Any = config.get("added_tokens_decoder") or {}
    known = tokenizer.get_added_tokens_decoder()
    try:
        wanted = sorted((int(id), fields) for id, fields in declared.items() if int(id) not in known)
        for id, fields in wanted:
            content = str(fields["content"])
            flags = {
                name: bool(fields.get(name)) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")
            }
            add_token(tokenizer, AddedToken(content, **flags))
            if tokenizer.token_to_id(content) != id:
                raise CheckpointDamaged(
                    path, 0, f"added token {content!r} cannot have id {id}: the vocabulary has it not"
                )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointDamaged(path, 0, "added_tokens_decoder must hold tokens by id") from error


def _spelling(tokenizer: tokenizers.Tokenizer, folder: Path) -> Spelling:
    """How the vocabulary spells its tokens, by what the tokenizer does to turn them back into text."""
    kinds = _kinds(tokenizer.decoder) | _kinds(tokenizer.pre_tokenizer)
    if "ByteLevel" in kinds:
        return "bytes"
    if kinds & {"ByteFallback", "Metaspace", "Replace"}:
        return "sentencepiece"
    raise CheckpointUnsupported(
        f"the tokenizer of {folder} decodes with {', '.join(sorted(kinds)) or 'nothing'}; only byte-level and"
        " sentencepiece vocabularies are read"
    )


def _kinds(step: Any) -> set[str]:
    """The names of a decoder's or pre-tokenizer's steps."""
    if step is None:
        return set()
    state: dict[str, Any] = json.loads(step.__getstate__())
    steps: list[dict[str, Any]] = state.get("decoders") or state.get("pretokenizers") or [state]
    return {each["type"] for each in steps}
