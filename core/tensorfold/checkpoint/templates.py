"""The chat templates of a Hugging Face folder, in all the places where they are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from tensorfold.checkpoint.json_files import read_object, read_text
from tensorfold.contracts.chat import ChatTemplates
from tensorfold.errors import CheckpointDamaged

__all__ = ["folder_templates"]

MAX_TEMPLATE: Final = 4 << 20
"""The longest template file, in bytes; real ones have up to 30,000."""


def folder_templates(folder: Path) -> ChatTemplates:
    """A folder's templates and control tokens.

    A template in a file of its own goes before one in a JSON file: tools that write the former leave the latter stale.

    Raises:
        CheckpointDamaged: a file that should hold a template does not.
    """
    config = read_object(folder / "tokenizer_config.json")
    default, named = _listed(folder / "tokenizer_config.json", config.get("chat_template"))
    processor = read_object(folder / "chat_template.json").get("chat_template")
    if isinstance(processor, str):
        default = processor
    if (folder / "chat_template.jinja").exists():
        default = read_text(folder / "chat_template.jinja", MAX_TEMPLATE)
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        named[path.stem] = read_text(path, MAX_TEMPLATE)
    return ChatTemplates(default, named, _special_tokens({**read_object(folder / "special_tokens_map.json"), **config}))


def _listed(path: Path, value: object) -> tuple[str | None, dict[str, str]]:
    """The default and the named ones of a `chat_template` value: a text, or a list of `{name, template}`."""
    match value:
        case None:
            return None, {}
        case str():
            return value, {}
        case list():
            named: dict[str, str] = {}
            for item in cast("list[object]", value):
                match item:
                    case {"name": str(name), "template": str(template)}:
                        named[name] = template
                    case _:
                        raise CheckpointDamaged(path, 0, "an entry of chat_template has no name or no template")
            return named.pop("default", None), named
        case _:
            raise CheckpointDamaged(path, 0, "chat_template must be a text or a list of named ones")


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Every `..._token` of a tokenizer's config: a spelling, or an object with its `content`."""
    tokens: dict[str, str] = {}
    for key, value in config.items():
        if key.endswith("_token"):
            match value:
                case str(spelling) | {"content": str(spelling)}:
                    tokens[key] = spelling
                case _:
                    pass
    return tokens
