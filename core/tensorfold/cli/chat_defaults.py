"""What the configuration says for conversations that say nothing."""

from __future__ import annotations

import msgspec

from tensorfold.chat.thinking import ChatDefaults
from tensorfold.config import ServeConfig
from tensorfold.errors import ConfigError
from tensorfold.ir import JSON

__all__ = ["chat_defaults"]


def chat_defaults(config: ServeConfig) -> ChatDefaults:
    """The effort, and the template's variables.

    Raises:
        ConfigError: a variable is not written as `NAME=JSON`.
    """
    where = config.origins.get("template_vars_default", "template_vars_default")
    variables = dict(_variable(each, where) for each in config.template_vars_default)
    return ChatDefaults(effort=config.reasoning_effort, variables=variables)


def _variable(given: str, where: str) -> tuple[str, JSON]:
    name, _, text = given.partition("=")
    try:
        value: JSON = msgspec.json.decode(text)
    except msgspec.DecodeError:
        value, name = None, ""
    if not name.isidentifier():
        raise ConfigError(f"{where} is {given!r}, and must be NAME=JSON, such as preserve_thinking=false")
    return name, value
