"""Coding agents ask for a command, run it, send its output back, and show the reply: against a scripted model."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tensorfold.contracts.dialect import Dialect
from tensorfold.http import create_app
from tensorfold.ir import (
    Chat,
    Finished,
    Queued,
    Request,
    Stopped,
    Text,
    TextDelta,
    ThinkingDelta,
    Timings,
    ToolCallDelta,
    ToolResult,
    Usage,
)
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem
from tensorfold.testing.serving import served
from tensorfold_dialect_anthropic import anthropic_dialect
from tensorfold_dialect_openai import openai_dialect

pytestmark = pytest.mark.slow

QUESTION = "What is in note.txt?"
SHELLS = {"exec_command": "cmd", "Bash": "command", "run_shell_command": "command"}
"""The tools that run a command, and the name of its argument."""


class Model:
    """Calls the shell once, then says what it gave back."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        """Of the commands."""

    def script(self, request: Request) -> Iterable[ScriptItem]:
        """One reply."""
        assert isinstance(request.prompt, Chat)
        parts = [part for message in request.prompt.messages for part in message.parts]
        results = [part for part in parts if isinstance(part, ToolResult)]
        yield Queued(5)
        if results:
            self.outputs += [part.text for part in results[-1].parts if isinstance(part, Text)]
            yield from (TextDelta(0, "It holds an animal."), Stopped(0, "end"))
        else:
            (name,) = [tool.name for tool in request.prompt.tools if tool.name in SHELLS]
            yield from (ThinkingDelta(0, "hm"), ToolCallDelta(0, 0, "call_1", name, ""))
            yield ToolCallDelta(0, 0, None, None, json.dumps({SHELLS[name]: "cat note.txt", "description": "look"}))
            yield Stopped(0, "tool_calls")
        yield Finished(Usage(5, 3), Timings(), ("00",))

    def serving(self, dialect: Dialect) -> AbstractContextManager[str]:
        """A server, by its URL."""
        return served(create_app(engine=ScriptedEngine(MODEL, self.script), model=MODEL, dialects=[dialect]))


def said(program: Path, *arguments: str, folder: Path, environment: dict[str, str]) -> str:
    """What an agent says; it is kept from everything of the user's own."""
    home = folder.parent
    done = subprocess.run(
        [str(program), *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_codex(install: Callable[[str, str], Path], project: Path) -> None:
    codex = install("@openai/codex@0.171.0", "codex")
    model = Model()
    with model.serving(openai_dialect()) as url:
        settings = {
            "model": '"local"',
            "model_provider": '"local"',
            "web_search": '"disabled"',
            "agents.enabled": "false",
            "approval_policy": '"never"',
            "sandbox_mode": '"danger-full-access"',
            "model_providers.local.name": '"tensorfold"',
            "model_providers.local.base_url": f'"{url}/v1"',
            "model_providers.local.wire_api": '"responses"',
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        told = said(codex, "exec", "--skip-git-repo-check", *flags, QUESTION, folder=project, environment={})
    assert "It holds an animal." in told
    assert "wombat" in model.outputs[0]


@pytest.mark.requirement("T-389")
def test_claude_code(install: Callable[[str, str], Path], project: Path) -> None:
    """Claude Code works with `ANTHROPIC_BASE_URL`, any `ANTHROPIC_API_KEY` and a model ID from `/v1/models`."""
    claude = install("@anthropic-ai/claude-code@2.1.197", "claude")
    model = Model()
    with model.serving(anthropic_dialect()) as url:
        environment = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "local",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        told = said(
            claude,
            *("-p", QUESTION, "--model", MODEL.id, "--allowedTools", "Bash"),
            folder=project,
            environment=environment,
        )
    assert "It holds an animal." in told
    assert "wombat" in model.outputs[0]


def test_qwen_code(install: Callable[[str, str], Path], project: Path) -> None:
    """Over chat completions, streamed."""
    qwen = install("@qwen-code/qwen-code@0.15.10", "qwen")
    model = Model()
    with model.serving(openai_dialect()) as url:
        environment = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "local", "OPENAI_MODEL": MODEL.id}
        told = said(
            qwen,
            *("--auth-type", "openai", "--yolo", "-p", QUESTION),
            folder=project,
            environment=environment,
        )
    assert "It holds an animal." in told
    assert "wombat" in model.outputs[0]
