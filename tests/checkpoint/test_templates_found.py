"""Chat templates and control tokens: all the places where checkpoints keep them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensorfold.checkpoint.gguf_reader import GgufFile
from tensorfold.checkpoint.gguf_tokenizer import gguf_templates
from tensorfold.checkpoint.templates import folder_templates
from tensorfold.contracts.chat import ChatTemplates
from tensorfold.errors import CheckpointDamaged
from tensorfold.testing.gguf_writer import write_gguf


def folder(path: Path, **files: Any) -> ChatTemplates:
    for name, content in files.items():
        stem, _, suffix = name.rpartition("_")
        text = content if suffix == "jinja" else json.dumps(content)
        (path / f"{stem}.{suffix}").write_text(text)
    return folder_templates(path)


def test_a_template_as_text_is_the_default(tmp_path: Path) -> None:
    assert folder(tmp_path, tokenizer_config_json={"chat_template": "T"}).default == "T"


def test_named_templates_are_kept_by_name(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "U"}]
    found = folder(tmp_path, tokenizer_config_json={"chat_template": named})
    assert (found.default, found.named) == ("D", {"tool_use": "U"})


def test_a_template_in_a_file_of_its_own_goes_before_the_config(tmp_path: Path) -> None:
    found = folder(tmp_path, tokenizer_config_json={"chat_template": "old"}, chat_template_json={"chat_template": "P"})
    assert found.default == "P"
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("R")
    found = folder(tmp_path, chat_template_jinja="J\n")
    assert (found.default, found.named) == ("J\n", {"rag": "R"})


def test_control_tokens_are_found_as_texts_and_as_objects(tmp_path: Path) -> None:
    found = folder(
        tmp_path,
        special_tokens_map_json={"bos_token": {"content": "<s>"}, "eos_token": "old", "pad_token": None},
        tokenizer_config_json={"eos_token": "</s>", "add_bos_token": True, "extra": ["x"]},
    )
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_a_folder_without_templates_has_none(tmp_path: Path) -> None:
    assert folder_templates(tmp_path) == ChatTemplates()


@pytest.mark.parametrize("value", [7, {"a": "b"}, [7], [{"name": "x"}], [{"name": "x", "template": 1}]])
def test_a_template_that_is_none_is_refused(tmp_path: Path, value: object) -> None:
    with pytest.raises(CheckpointDamaged, match="chat_template"):
        folder(tmp_path, tokenizer_config_json={"chat_template": value})


def test_gguf_metadata_holds_templates_and_control_tokens(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "a.gguf",
        {
            "tokenizer.ggml.tokens": ["<s>", "</s>", "<unk>"],
            "tokenizer.ggml.bos_token_id": 0,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.unknown_token_id": 2,
            "tokenizer.ggml.padding_token_id": 99,
            "tokenizer.chat_template": "D",
            "tokenizer.chat_templates": ["tool_use", "gone"],
            "tokenizer.chat_template.tool_use": "U",
        },
        {},
    )
    found = gguf_templates(GgufFile(path).metadata)
    assert (found.default, found.named) == ("D", {"tool_use": "U"})
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
