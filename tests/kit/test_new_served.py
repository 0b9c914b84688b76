"""What `tensorfold new` writes, in one real server: a model of a new family, asked in a new API, by a new caller."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorfold.cli.new.writing import write_plugin

from .pages import Command, Follower


@pytest.mark.torch
def test_new_plugins_are_served_without_being_installed(tmp_path: Path) -> None:
    """The commands that `tensorfold new` prints, joined to one server; without the password nobody is answered."""
    folders = {kind: write_plugin(kind, "quokka", tmp_path).folder.name for kind in ("model", "dialect", "auth")}
    plugins = " ".join(f"--plugin ./{name}" for name in folders.values())
    ask = "curl -s http://127.0.0.1:8080/quokka/complete -H 'content-type: application/json'"
    body = """-d '{"prompt": "hello", "max_tokens": 3}'"""
    with Follower(tmp_path) as follower:
        follower.follow(
            [
                Command(f"python -m tensorfold.testing.tiny_checkpoint ./{folders['model']} ./tiny", "tiny is written"),
                Command(f"QUOKKA_PASSWORD=secret tensorfold serve ./tiny {plugins} --port 8080 &", ""),
                Command(f"{ask} {body}", '{"error":"...API key..."}'),
                Command(f"{ask} -H 'authorization: Bearer secret' {body}", '{"text":"...","tokens":3}'),
                Command(f"{ask} -H 'x-api-key: secret' -d '{{\"prompt\": 7}}'", '{"error":"...prompt..."}'),
            ]
        )
