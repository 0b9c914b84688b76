"""GGUF checkpoints: one file or numbered parts, read as a Hugging Face checkpoint by a family's rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.checkpoint.base import Format
from tensorfold.checkpoint.gguf_metadata import GgufMetadata
from tensorfold.checkpoint.gguf_reader import GgufFile
from tensorfold.checkpoint.gguf_tokenizer import gguf_templates, gguf_tokenizer
from tensorfold.checkpoint.gguf_undo import Place, restored_shape, undone
from tensorfold.checkpoint.identity import FileMark, identity
from tensorfold.contracts.chat import Tokenizer
from tensorfold.contracts.gguf import GgufArchitecture, GgufTensor
from tensorfold.contracts.model_config import ModelConfig
from tensorfold.contracts.tensors import Form, Tensor, TensorInfo
from tensorfold.errors import CheckpointDamaged, CheckpointNotFound, CheckpointUnsupported

__all__ = ["GgufCheckpoint", "GgufFiles"]

_PART: Final = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
MAX_PARTS: Final = 1000

_END_TOKENS: Final = ("eos", "eot", "eom")
"""Metadata keys `tokenizer.ggml.{}_token_id` of tokens that end a reply."""

_SAMPLING: Final[Mapping[str, str]] = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
"""Keys of `generation_config.json` to metadata keys."""


class GgufFiles:
    """The file, or all parts of a split one, before any family has read it."""

    def __init__(self, path: Path) -> None:
        """Read the headers.

        Raises:
            CheckpointNotFound: a part is not there, or may not be read.
            CheckpointDamaged: a header cannot be right, or the parts do not belong together.
            CheckpointUnsupported: it is a later part of a split file, or of a version that is not read.
        """
        self.path = path
        first = GgufFile(path)
        self.metadata = first.metadata
        self.files = (first, *_further_parts(first))
        self.where: dict[str, GgufFile] = {}
        """The file of each tensor, by its name in the file."""
        for file in self.files:
            for name in file.tensors:
                if name in self.where:
                    raise CheckpointDamaged(file.path, 0, f"tensor {name} is also in {self.where[name].path.name}")
                self.where[name] = file
        count = self.metadata.natural("split.tensors.count")
        if len(self.files) > 1 and count is not None and count != len(self.where):
            raise CheckpointDamaged(path, 0, f"the parts hold {len(self.where)} tensors, and should hold {count}")

    @property
    def architecture(self) -> str:
        """`general.architecture`; empty when the file does not say."""
        return self.metadata.text("general.architecture") or ""


class GgufCheckpoint:
    """GGUF files under the names of a family's rules."""

    def __init__(self, files: GgufFiles, rules: GgufArchitecture) -> None:
        self.path = files.path
        self._files = files
        rules = _adapted(rules, files)
        self._rules = rules
        self.config = _config(files, rules)
        self.templates = gguf_templates(files.metadata)

    @property
    def format(self) -> Format:
        """GGUF."""
        return "gguf"

    @property
    def identity(self) -> str:
        """Over every part, headers included."""
        return self._identity

    @cached_property
    def _identity(self) -> str:
        return identity(FileMark(file.path.name, file.size, file.modified, file.header) for file in self._files.files)

    def names(self) -> Iterable[str]:
        """Every tensor; one that the rules do not know keeps its own name."""
        return self._where.keys()

    def info(self, name: str) -> TensorInfo:
        """What the file says, under the Hugging Face name."""
        stored, rule = self._where[name]
        record = self._files.where[stored].tensors[stored]
        # Vectors are small, and nobody multiplies with their codes.
        form: Form = "dense" if record.type.dense else "affine" if len(record.shape) > 1 else "expanded"
        shape = restored_shape(record.shape, rule)
        return TensorInfo(name, shape, record.type.name, record.size, form, record.type.problem)

    def read(self, name: str) -> Tensor:
        """A tensor, with its rows and values as a Hugging Face checkpoint has them."""
        stored, rule = self._where[name]
        file = self._files.where[stored]
        return undone(file.read(stored), rule, self.config, Place(file.path, file.tensors[stored].offset, stored))

    def tokenizer(self) -> Tokenizer:
        """Built from the metadata."""
        return gguf_tokenizer(self._files.metadata)

    @cached_property
    def _where(self) -> dict[str, tuple[str, GgufTensor]]:
        """The name in the file, and the rule, of each tensor."""
        patterns = [(_pattern(stored), rule) for stored, rule in self._rules.tensors.items()]
        where: dict[str, tuple[str, GgufTensor]] = {}
        for stored, file in self._files.where.items():
            if stored in self._rules.ignored:
                continue
            matches = ((pattern.fullmatch(stored), rule) for pattern, rule in patterns)
            found = next(((match, rule) for match, rule in matches if match is not None), None)
            layer = found[0].groupdict().get("i", "") if found else ""
            rule = replace(found[1], name=found[1].name.replace("{i}", layer)) if found else GgufTensor(stored)
            if rule.name in where:
                raise CheckpointDamaged(file.path, 0, f"{stored} and {where[rule.name][0]} are both {rule.name}")
            where[rule.name] = (stored, rule)
        return where


def _adapted(rules: GgufArchitecture, files: GgufFiles) -> GgufArchitecture:
    """The rules for these files."""
    if rules.adapt is None:
        return rules
    try:
        return rules.adapt(rules, _Facts(files, rules.architecture))
    except CheckpointUnsupported as error:
        raise CheckpointUnsupported(f"{files.path}: {error}") from None


class _Facts:
    """What rules may ask of the files."""

    def __init__(self, files: GgufFiles, architecture: str) -> None:
        self._files = files
        self._architecture = architecture

    def get(self, key: str) -> Any:
        return self._files.metadata.plain(key.replace("{arch}", self._architecture))

    def names(self) -> Iterable[str]:
        return self._files.where.keys()

    def values(self, name: str) -> NDArray[np.float32]:
        return self._files.where[name].read(name).f32()

    def damaged(self, name: str, problem: str) -> CheckpointDamaged:
        file = self._files.where[name]
        return Place(file.path, file.tensors[name].offset, name).damaged(problem)


# ---- parts -------------------------------------------------------------------------------------------------


def _further_parts(first: GgufFile) -> Iterable[GgufFile]:
    count = first.metadata.natural("split.count") or 1
    if count == 1:
        return
    match = _PART.fullmatch(first.path.name)
    if match is None or int(match[3]) != count or count > MAX_PARTS:
        raise CheckpointUnsupported(
            f"{first.path} is one of {count} parts, which are read by their names: NAME-00001-of-{count:05}.gguf"
        )
    if first.metadata.natural("split.no") != 0 or int(match[2]) != 1:
        raise CheckpointUnsupported(f"{first.path} is not the first part: give {match[1]}-00001-of-{match[3]}.gguf")
    for number in range(2, count + 1):
        path = first.path.with_name(f"{match[1]}-{number:05}-of-{match[3]}.gguf")
        if not path.is_file():
            raise CheckpointNotFound(f"{path} is missing: {first.path.name} is the first of {count} parts")
        part = GgufFile(path)
        if part.metadata.natural("split.no") != number - 1 or part.metadata.natural("split.count") != count:
            raise CheckpointDamaged(path, 0, f"its metadata does not say that it is part {number} of {count}")
        yield part


# ---- the config --------------------------------------------------------------------------------------------


def _config(files: GgufFiles, rules: GgufArchitecture) -> ModelConfig:
    metadata = files.metadata
    values: dict[str, Any] = dict(rules.fixed)
    for key, source in rules.config.items():
        value = metadata.plain(source.replace("{arch}", rules.architecture))
        if value is not None:
            _put(values, key, value)
    tokens = metadata.texts("tokenizer.ggml.tokens")
    general: dict[str, Any] = {
        "vocab_size": None if tokens is None else len(tokens),
        "tie_word_embeddings": "output.weight" not in files.where,
        **{f"{name}_token_id": metadata.natural(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")},
    }
    for key, value in general.items():
        if value is not None:
            values.setdefault(key, value)
    return ModelConfig(values, _generation(metadata), str(files.path))


def _put(values: dict[str, Any], key: str, value: object) -> None:
    """Set a key; one with dots stands in nested objects, which are copied: they may be the rules' own."""
    *sections, last = key.split(".")
    for section in sections:
        values[section] = dict(cast("Mapping[str, Any]", values.get(section, {})))
        values = cast("dict[str, Any]", values[section])
    values[last] = value


def _generation(metadata: GgufMetadata) -> dict[str, Any]:
    ends = [metadata.natural(f"tokenizer.ggml.{name}_token_id") for name in _END_TOKENS]
    found = {key: metadata.plain(source) for key, source in _SAMPLING.items()}
    return {
        "eos_token_id": sorted({token for token in ends if token is not None}),
        **{key: value for key, value in found.items() if value is not None},
    }


def _pattern(stored: str) -> re.Pattern[str]:
    before, layered, after = stored.partition("{i}")
    return re.compile(re.escape(before) + (r"(?P<i>0|[1-9]\d*)" if layered else "") + re.escape(after))
