"""What the configuration says for conversations that say nothing."""

from __future__ import annotations

import pytest

from tensorfold.chat.thinking import ChatDefaults
from tensorfold.cli.chat_defaults import chat_defaults
from tensorfold.config import ServeConfig, load_config
from tensorfold.errors import ConfigError


@pytest.mark.requirement("T-240", "Y-048")
def test_variables_of_the_template_are_names_with_json_behind_them() -> None:
    """A configured default for each of the template's variables."""
    config = ServeConfig(template_vars_default=("preserve_thinking=false", 'words=["a=b"]'), reasoning_effort="low")
    assert chat_defaults(config) == ChatDefaults(effort="low", variables={"preserve_thinking": False, "words": ["a=b"]})
    assert chat_defaults(ServeConfig()) == ChatDefaults()


@pytest.mark.parametrize("given", ["preserve_thinking", "preserve_thinking=", "x=no", "=1", "a b=1"])
def test_what_is_no_name_with_json_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="must be NAME=JSON"):
        chat_defaults(ServeConfig(template_vars_default=(given,)))


@pytest.mark.requirement("T-228")
def test_the_effort_is_one_of_the_apis_words() -> None:
    """`--reasoning-effort` takes the same words as a request."""
    flags = {("", "reasoning_effort"): "xhigh", ("", "thinking_budget"): "100"}
    config = load_config((), None, {}, flags)
    assert (config.reasoning_effort, config.thinking_budget) == ("xhigh", 100)
    with pytest.raises(ConfigError, match="must be one of none, minimal, low"):
        ServeConfig(reasoning_effort="ultra")
