"""The `llm` command line, with a server of ours among its models."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tensorfold.http import create_app
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.scripted_engine import ScriptedEngine
from tensorfold.testing.serving import served
from tensorfold_dialect_openai import openai_dialect

pytest.importorskip("llm")


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_on_the_command_line(tmp_path: Path, stream: bool) -> None:
    engine = ScriptedEngine(MODEL, lambda request: reply_events(["Hel", "lo"]))
    app = create_app(engine=engine, model=MODEL, dialects=[openai_dialect()])
    with served(app) as url:
        models = f"- model_id: local\n  model_name: any\n  api_base: {url}/v1\n"
        (tmp_path / "extra-openai-models.yaml").write_text(models)
        done = subprocess.run(
            [sys.executable, "-m", "llm", "prompt", "-m", "local", "hi", *([] if stream else ["--no-stream"])],
            env={**os.environ, "LLM_USER_PATH": str(tmp_path), "LLM_LOAD_PLUGINS": ""},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Hello"
