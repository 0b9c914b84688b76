"""ACME's plugins in a real server: nothing of tensorfold was changed to serve them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

PASSWORD = {"Authorization": "Bearer open sesame"}


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """`tensorfold serve` with everything of ACME's."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorfold", "serve", str(folder), "--plugin", "dialects/acme", "--port", "0"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ACME_PASSWORD": "open sesame"},
    )
    assert server.stderr is not None
    said: list[str] = []
    for line in server.stderr:
        said.append(line)
        if found := re.search(r"address +(http://\S+)/v1", line):
            break
    else:
        pytest.fail("".join(said))
    yield found.group(1)
    server.terminate()
    server.communicate(timeout=30)
    assert server.returncode == 0


def test_a_foreign_model_answers_through_a_foreign_api_to_a_foreign_caller(url: str) -> None:
    body = {"prompt": "hello", "tokens": 5}
    answer = httpx.post(f"{url}/acme/complete", json=body, headers=PASSWORD, timeout=60)
    assert answer.status_code == 200
    assert answer.json()["tokens"] == 5
    with httpx.stream(
        "POST", f"{url}/acme/complete", json={**body, "stream": True}, headers=PASSWORD, timeout=60
    ) as stream:
        assert stream.headers["content-type"].startswith("application/x-ndjson")
        *pieces, last = [json.loads(line) for line in stream.iter_lines() if line]
    assert "".join(piece["text"] for piece in pieces) == answer.json()["text"]
    assert last == {"done": True, "tokens": 5}


def test_the_same_model_answers_through_our_api(url: str) -> None:
    body = {"prompt": "hello", "max_tokens": 5, "temperature": 0}
    ours = httpx.post(f"{url}/v1/completions", json=body, headers=PASSWORD, timeout=60).json()
    theirs = httpx.post(
        f"{url}/acme/complete", json={"prompt": "hello", "tokens": 5}, headers=PASSWORD, timeout=60
    ).json()
    assert ours["choices"][0]["text"] == theirs["text"]


def test_errors_come_in_the_foreign_apis_own_words(url: str) -> None:
    assert httpx.post(f"{url}/acme/complete", json={"prompt": "hello"}).json().keys() == {"acme_error"}
    refused = httpx.post(f"{url}/acme/complete", json={"prompt": 7}, headers=PASSWORD)
    assert refused.status_code == 400
    assert "prompt" in refused.json()["acme_error"]
    assert httpx.post(f"{url}/acme/complete", json={"prompt": "hello"}, headers={"x-api-key": "me"}).status_code == 401


def test_the_foreign_distribution_is_listed_with_its_version_and_states() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tensorfold", "plugins", "--json"], capture_output=True, text=True, check=True
    )
    acme = {each["kind"]: each for each in json.loads(done.stdout) if each["distribution"] == "tensorfold-acme"}
    assert {kind: (each["state"], each["version"]) for kind, each in acme.items()} == {
        "auth": ("loaded", "1.0"),
        "dialects": ("disabled", "1.0"),
        "extras": ("loaded", "1.0"),
        "models": ("loaded", "1.0"),
    }
