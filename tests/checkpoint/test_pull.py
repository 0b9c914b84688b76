"""`tensorfold pull`, against a server that speaks the Hub's routes, and cuts connections."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tensorfold.checkpoint.gguf_reader import GgufFile
from tensorfold.checkpoint.open import open_checkpoint
from tensorfold.cli.assemble import assemble
from tensorfold.cli.early import take_early
from tensorfold.cli.program import run
from tensorfold.errors import CheckpointError, CheckpointNotFound, CheckpointUnsupported, ConfigError
from tensorfold.plugins import Plugins, Wanted
from tensorfold.testing.declared_checkpoint import declared_drafter_arrays, write_declared, write_declared_drafter
from tensorfold.testing.family_configs import DRAFTER_CONFIGS, FAMILY_CONFIGS
from tensorfold.testing.gguf_drafter import write_assistant_gguf
from tensorfold.testing.tiny import write_tiny
from tensorfold.testing.tiny_gguf import write_tiny_gguf
from tensorfold_extra_checkpoints import download as downloading
from tensorfold_extra_checkpoints import tensorfold_find_checkpoint, tensorfold_list_checkpoints
from tensorfold_extra_checkpoints.pull import Pull
from tensorfold_model_gemma.family import GemmaFamily

COMMIT = "c" * 40
TOKEN = "hf_secret"


@dataclass
class Repository:
    """What the server holds and how it behaves."""

    files: dict[str, bytes]
    commit: str = COMMIT
    cut: int | None = None
    """Bytes of content after which each connection for a large file is cut."""
    ranges: bool = True
    refuse: list[int] = field(default_factory=list[int])
    """Statuses with which the next requests for files are refused."""
    dies: bool = False
    """Whether everything is refused once a connection was cut."""
    elsewhere: str | None = None
    """Large files are redirected there."""
    tell: Callable[[str, dict[str, Any]], None] = lambda name, sibling: None
    """Changes what the listing says of a file."""
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list[tuple[str, str | None, str | None]])
    """Path, Range and Authorization of every request."""


def git_digest(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


def large(name: str) -> bool:
    return name.endswith((".safetensors", ".gguf"))


class Handler(BaseHTTPRequestHandler):
    """As much of the Hub as a download asks."""

    repository: Repository

    def do_GET(self) -> None:
        repository = self.repository
        path = self.path.partition("?")[0]
        repository.asked.append((path, self.headers["Range"], self.headers["Authorization"]))
        if path == "/api/models/org/tiny/revision/main":
            self._answer(200, json.dumps(self._listing()).encode())
        elif path.startswith((f"/org/tiny/resolve/{repository.commit}/", "/store/")):
            name = path.rpartition("/")[2]
            if repository.refuse:
                self._answer(repository.refuse.pop(0), b"no")
            elif repository.elsewhere is not None and large(name):
                self.send_response(302)
                self.send_header("Location", f"{repository.elsewhere}/store/{name}")
                self.end_headers()
            else:
                self._file(name)
        else:
            self._answer(404, b'{"error": "Repository not found"}')

    def _listing(self) -> dict[str, Any]:
        siblings: list[dict[str, Any]] = []
        for name, content in self.repository.files.items():
            sibling: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": git_digest(content)}
            if large(name):
                sibling["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 1}
            self.repository.tell(name, sibling)
            siblings.append(sibling)
        return {"id": "org/tiny", "sha": self.repository.commit, "siblings": siblings}

    def _file(self, name: str) -> None:
        content, start = self.repository.files[name], 0
        if (asked := self.headers["Range"]) and self.repository.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.repository.cut
        if cut is not None and large(name):
            self.wfile.write(content[start : start + cut])
            self.close_connection = True
            if self.repository.dies:
                self.repository.refuse.extend([503] * 50)
        else:
            self.wfile.write(content[start:])

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


class Said:
    """A display that remembers."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.bytes: list[int] = []
        self.lines: list[str] = []

    def begin(self, path: str, size: int) -> Callable[[int], None]:
        self.begun.append(path)
        return self.bytes.append

    def say(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def serve() -> Iterator[Callable[[Repository], str]]:
    """Serves repositories; gives the address."""
    servers: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(repository: Repository) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (Handler,), {"repository": repository}))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    folder = write_tiny(tmp_path / "made")
    files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    return Repository({**files, "README.md": b"words", "pytorch_model.bin": b"pickle"})


class Puller:
    """Pulls from one server into one cache."""

    def __init__(self, url: str, cache: Path, **environment: str) -> None:
        self.cache = cache
        self.environment = {"HF_ENDPOINT": url, "HF_HUB_CACHE": str(cache), "HF_HOME": str(cache.parent), **environment}
        self.said = Said()
        self.head = 1 << 25

    def __call__(self, name: str = "org/tiny", revision: str = "main", files: tuple[str, ...] = ()) -> Path:
        families = [offered.value for offered in Plugins(Wanted()).families()]
        return Pull(self.environment, families, self.said, lambda seconds: None, self.head).run(name, revision, files)


@pytest.fixture
def pull(serve: Callable[[Repository], str], repository: Repository, tmp_path: Path) -> Puller:
    return Puller(serve(repository), tmp_path / "hub")


def weights_asked(repository: Repository) -> list[str | None]:
    return [asked for path, asked, _ in repository.asked if path.endswith("model.safetensors")]


def test_a_model_is_brought_checked_and_found_by_everything_that_reads_the_cache(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pull()
    wanted = {name for name in repository.files if name not in ("README.md", "pytorch_model.bin")}
    assert {file.name for file in folder.iterdir()} == wanted
    assert all((folder / name).read_bytes() == repository.files[name] for name in wanted)
    families = [offered.value for offered in Plugins(Wanted()).families()]
    assert open_checkpoint(folder, families).family.name == "llama"
    assert pull.said.lines[0].startswith("org/tiny is run by llama")
    for name, value in pull.environment.items():
        monkeypatch.setenv(name, value)
    assert tensorfold_find_checkpoint("org/tiny", weights=True) == folder
    (listed,) = [each for each in tensorfold_list_checkpoints() if each.source == "Hub cache"]
    assert (listed.name, listed.path, listed.complete) == ("org/tiny", folder, True)
    assert listed.bytes == sum(len(repository.files[name]) for name in wanted)


def test_the_second_time_nothing_is_downloaded(pull: Puller, repository: Repository) -> None:
    folder = pull()
    before = len(repository.asked)
    assert pull() == folder
    assert len(repository.asked) == before + 1, "the listing alone"


def test_the_cache_is_the_one_that_the_hubs_own_client_reads(pull: Puller, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    folder = pull()
    found = hub.snapshot_download("org/tiny", cache_dir=pull.cache, local_files_only=True)
    assert Path(found).resolve() == folder.resolve()


def test_a_name_that_is_served_is_downloaded_once_without_what_is_not_read(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configs alone when those are enough; then weights in safetensors and tokenizer; no pickle, and from the second
    time on nothing at all."""
    for name, value in {**pull.environment, "HF_HUB_OFFLINE": "0"}.items():
        monkeypatch.setenv(name, value)
    configs = tensorfold_find_checkpoint("org/tiny", weights=False)
    assert configs is not None and (configs / "config.json").exists()
    assert weights_asked(repository) == []
    assert tensorfold_find_checkpoint("org/tiny", weights=True) == configs
    read = {name for name in repository.files if name not in ("README.md", "pytorch_model.bin")}
    assert {file.name for file in configs.iterdir()} == read
    before = len(repository.asked)
    assert tensorfold_find_checkpoint("org/tiny", weights=True) == configs
    assert len(repository.asked) == before


def test_a_name_that_is_served_is_checked_like_one_that_is_pulled(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**pull.environment, "HF_HUB_OFFLINE": "0"}.items():
        monkeypatch.setenv(name, value)

    def lie(name: str, sibling: dict[str, Any]) -> None:
        if large(name):
            sibling["lfs"]["sha256"] = "0" * 64

    repository.tell = lie
    with pytest.raises(CheckpointError, match="is not what the Hub lists"):
        tensorfold_find_checkpoint("org/tiny", weights=True)


def test_cut_connections_are_taken_up_where_they_broke(pull: Puller, repository: Repository) -> None:
    size = len(repository.files["model.safetensors"])
    repository.cut = size // 5 + 1
    folder = pull()
    assert (folder / "model.safetensors").read_bytes() == repository.files["model.safetensors"]
    starts = [0 if asked is None else int(asked[6:-1]) for asked in weights_asked(repository)]
    assert starts == [number * repository.cut for number in range(5)]


def test_a_download_that_was_broken_off_goes_on_with_the_next_command(pull: Puller, repository: Repository) -> None:
    size = len(repository.files["model.safetensors"])
    whole = repository.files["model.safetensors"]
    repository.cut, repository.dies = size // 2, True
    with pytest.raises(CheckpointError, match=r"the server answers 503; [\d,]+ of [\d,]+ bytes are kept"):
        pull()
    repository.refuse.clear()
    repository.cut = None
    repository.asked.clear()
    folder = pull()
    assert weights_asked(repository) == [f"bytes={size // 2}-"]
    assert (folder / "model.safetensors").read_bytes() == whole


def test_a_server_without_ranges_is_read_from_the_beginning(pull: Puller, repository: Repository) -> None:
    blob = (
        pull.cache / "models--org--tiny" / "blobs" / hashlib.sha256(repository.files["model.safetensors"]).hexdigest()
    )
    blob.parent.mkdir(parents=True)
    blob.with_name(blob.name + downloading.PART).write_bytes(b"half of it")
    repository.ranges = False
    assert (pull() / "model.safetensors").read_bytes() == repository.files["model.safetensors"]


def test_a_part_that_was_spoilt_is_noticed_and_thrown_away(pull: Puller, repository: Repository) -> None:
    content = repository.files["model.safetensors"]
    blob = pull.cache / "models--org--tiny" / "blobs" / hashlib.sha256(content).hexdigest()
    part = blob.with_name(blob.name + downloading.PART)
    part.parent.mkdir(parents=True)
    part.write_bytes(b"?" * 100)
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not what the Hub lists"):
        pull()
    assert not part.exists() and not blob.exists()
    assert not (pull.cache / "models--org--tiny" / "refs").exists(), "no revision names what is not whole"
    assert (pull() / "model.safetensors").read_bytes() == content


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_content_that_is_not_what_the_hub_lists_is_never_used(pull: Puller, repository: Repository, name: str) -> None:
    """Of large files by SHA-256, of small ones by git's digest."""
    wrong = {"model.safetensors": "0" * 64, "config.json": "0" * 40}[name]

    def tell(each: str, sibling: dict[str, Any]) -> None:
        if each == name:
            (sibling.get("lfs") or sibling)["sha256" if large(name) else "blobId"] = wrong

    repository.tell = tell
    with pytest.raises(CheckpointError, match=f"{name} is not what the Hub lists"):
        pull()


def test_a_model_that_cannot_be_run_is_refused_before_its_weights(pull: Puller, repository: Repository) -> None:
    config = {**json.loads(repository.files["config.json"]), "model_type": "abacus", "architectures": ["Abacus"]}
    repository.files["config.json"] = json.dumps(config).encode()
    with pytest.raises(CheckpointUnsupported, match="no model family runs this checkpoint"):
        pull()
    assert weights_asked(repository) == []


def test_a_drafter_is_brought_like_a_model(pull: Puller, repository: Repository, tmp_path: Path) -> None:
    """It is run by nobody alone; what it is for is said."""
    folder = write_declared_drafter(tmp_path / "drafter", GemmaFamily(), DRAFTER_CONFIGS["gemma4"])
    repository.files = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
    assert (pull() / "model.safetensors").read_bytes() == repository.files["model.safetensors"]
    assert pull.said.lines[0].startswith("org/tiny drafts for a Gemma 4 of hidden size 64")
    assert pull.said.lines[0].endswith("--draft-model org/tiny")


def test_a_quantization_that_is_not_read_is_refused_before_its_weights(pull: Puller, repository: Repository) -> None:
    config = {**json.loads(repository.files["config.json"]), "quantization_config": {"quant_method": "abacus"}}
    repository.files["config.json"] = json.dumps(config).encode()
    with pytest.raises(CheckpointUnsupported):
        pull()
    assert weights_asked(repository) == []


def test_the_token_goes_to_the_hub_and_not_to_where_it_sends_us(
    serve: Callable[[Repository], str], repository: Repository, tmp_path: Path
) -> None:
    store = Repository(dict(repository.files))
    repository.elsewhere = serve(store).replace("127.0.0.1", "localhost")
    folder = Puller(serve(repository), tmp_path / "hub", HF_TOKEN=TOKEN)()
    assert (folder / "model.safetensors").read_bytes() == repository.files["model.safetensors"]
    assert all(authorization == f"Bearer {TOKEN}" for _, _, authorization in repository.asked)
    assert [authorization for _, _, authorization in store.asked] == [None]


def test_gguf_files_are_chosen_by_their_names(pull: Puller, repository: Repository, monkeypatch: Any) -> None:
    repository.files = {"tiny-Q4_0.gguf": b"four", "tiny-Q8_0.gguf": b"eight", "README.md": b"words"}
    with pytest.raises(CheckpointNotFound, match=r"choose one with --file, of tiny-Q4_0.gguf, tiny-Q8_0.gguf"):
        pull()
    with pytest.raises(CheckpointNotFound, match=r"has no file \*F16\*; it has tiny-Q4_0"):
        pull(files=("*F16*",))
    file = pull(files=("*Q8_0.gguf",))
    assert (file.name, file.read_bytes()) == ("tiny-Q8_0.gguf", b"eight")
    monkeypatch.setenv("HF_HUB_CACHE", str(pull.cache))
    (listed,) = [each for each in tensorfold_list_checkpoints() if each.source == "Hub cache"]
    assert listed.name == str(file)


def gguf(path: Path, **changed: str) -> bytes:
    """A tiny file, in whose header texts are changed for others of the same length."""
    content = write_tiny_gguf(path).read_bytes()
    for old, new in changed.items():
        assert len(old) == len(new) and old.encode() in content
        content = content.replace(old.encode(), new.encode())
    return content


def test_a_gguf_file_that_cannot_be_run_is_refused_by_its_first_bytes(
    pull: Puller, repository: Repository, tmp_path: Path
) -> None:
    good = gguf(tmp_path / "tiny.gguf")
    pull.head = len(good) // 2
    repository.files = {"good.gguf": good, "bad.gguf": gguf(tmp_path / "bad.gguf", llama="abaci")}
    assert pull(files=("good.gguf",)).read_bytes() == good
    (said,) = pull.said.lines
    assert said.startswith("good.gguf is run by llama: ")
    repository.asked.clear()
    with pytest.raises(
        CheckpointUnsupported, match=r"no model family runs this checkpoint: looked at .*abaci.* in bad"
    ):
        pull(files=("bad.gguf",))
    assert "bad.gguf" not in pull.said.begun


def test_a_drafter_in_a_gguf_file_is_told_by_its_first_bytes(
    pull: Puller, repository: Repository, tmp_path: Path
) -> None:
    """What it is for is said; numbers that lie further behind and are asked for are no reason to refuse it."""
    config = DRAFTER_CONFIGS["gemma4"]
    arrays = declared_drafter_arrays(GemmaFamily(), config)
    good = write_assistant_gguf(tmp_path / "good.gguf", config, arrays).read_bytes()
    bad = write_assistant_gguf(tmp_path / "bad.gguf", config, arrays, metadata={"nextn_predict_layers": 1}).read_bytes()
    start = GgufFile(tmp_path / "good.gguf").tensors["rope_freqs.weight"].offset
    repository.files = {"good.gguf": good, "again.gguf": good, "bad.gguf": bad}
    pull.head = start + 4096
    assert pull(files=("good.gguf",)).read_bytes() == good
    (said,) = pull.said.lines
    assert said.startswith("good.gguf drafts for a Gemma 4 of hidden size 64") and said.endswith("as --draft-model")
    with pytest.raises(CheckpointUnsupported, match=r"^bad\.gguf: nextn_predict_layers is 1"):
        pull(files=("bad.gguf",))
    pull.head = start
    repository.files["again.gguf"] = good + bytes(32)
    assert pull(files=("again.gguf",)).read_bytes() == good + bytes(32)


def test_first_bytes_that_do_not_tell_are_no_reason_to_refuse(
    pull: Puller, repository: Repository, tmp_path: Path
) -> None:
    good = gguf(tmp_path / "tiny.gguf")
    pull.head = 100
    repository.files = {"model-00001-of-00002.gguf": good, "model-00002-of-00002.gguf": good[::-1]}
    pull(files=("*.gguf",))
    assert pull.said.begun == ["model-00001-of-00002.gguf", "model-00002-of-00002.gguf"]


@pytest.mark.parametrize("path", ["../../evil", "/etc/passwd", "a/../../../b.json", "..\\evil"])
def test_a_file_that_would_lie_elsewhere_is_refused(pull: Puller, repository: Repository, path: str) -> None:
    repository.files[path] = b"{}"
    with pytest.raises(CheckpointError, match="leads out of its folder"):
        pull()


def test_what_the_hub_does_not_give_is_told(pull: Puller, repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointNotFound, match=r"org/gone cannot be pulled: there is no such model.*Repository not found"
    ):
        pull("org/gone")
    with pytest.raises(CheckpointNotFound, match="does not answer"):
        Puller("http://127.0.0.1:1", tmp_path / "hub")()
    for name, revision in (("tiny", "main"), ("org/../x", "main"), ("org/tiny", "../x")):
        with pytest.raises(ConfigError):
            pull(name, revision)
    repository.refuse = [403] * 9
    with pytest.raises(CheckpointError, match="the server answers 403"):
        pull()


def test_no_room_is_told_before_anything_large_is_brought(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> Any:
        return type("Usage", (), {"free": 10})

    monkeypatch.setattr("shutil.disk_usage", full)
    with pytest.raises(CheckpointError, match="make room"):
        pull()
    assert weights_asked(repository) == []


def test_two_downloads_of_one_file_do_not_write_into_each_other(pull: Puller, repository: Repository) -> None:
    fcntl = pytest.importorskip("fcntl")
    blob = pull.cache / "models--org--tiny" / "blobs" / git_digest(repository.files["config.json"])
    blob.parent.mkdir(parents=True)
    with blob.with_name(blob.name + downloading.PART).open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(CheckpointError, match="another download is writing"):
            pull()


class Silent:
    """Stages that nobody watches."""

    def stage(self, text: str) -> None: ...

    def weights(self, done: int, total: int) -> None: ...


def test_serving_refuses_what_cannot_be_run_before_its_weights_are_downloaded(
    pull: Puller, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.files["config.json"] = b'{"model_type": "quokka"}'
    for name, value in {**pull.environment, "HF_HUB_OFFLINE": "0"}.items():
        monkeypatch.setenv(name, value)
    launch, _ = take_early([], {})
    with pytest.raises(CheckpointUnsupported, match="quokka"):
        assemble(launch.config({("", "model"): "org/tiny"}), launch.plugins, Silent())
    assert weights_asked(repository) == []


def test_a_drafter_that_does_not_fit_is_refused_before_its_weights_are_downloaded(
    pull: Puller, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.files["config.json"] = b'{"model_type": "llama"}'
    for name, value in {**pull.environment, "HF_HUB_OFFLINE": "0"}.items():
        monkeypatch.setenv(name, value)
    model = write_declared(tmp_path / "target", GemmaFamily(), FAMILY_CONFIGS["gemma4"])
    launch, _ = take_early([], {})
    flags = {("", "model"): str(model), ("", "draft_model"): "org/tiny"}
    with pytest.raises(CheckpointUnsupported, match="llama"):
        assemble(launch.config(flags), launch.plugins, Silent())
    assert weights_asked(repository) == []


def test_the_command_prints_where_it_is_and_what_it_does(
    pull: Puller, repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {**os.environ, **pull.environment}
    assert run(["pull", "org/tiny"], environment) == 0
    told = capsys.readouterr()
    assert Path(told.out.strip()).is_dir() and told.out.count("\n") == 1
    assert "downloading model.safetensors" in told.err
    assert run(["pull", "org/gone"], environment) == 2
    assert capsys.readouterr().err.startswith("tensorfold: org/gone cannot be pulled")


def test_nothing_is_asked_of_the_hub_where_that_is_forbidden(pull: Puller, repository: Repository) -> None:
    pull.environment["HF_HUB_OFFLINE"] = "1"
    with pytest.raises(CheckpointNotFound, match="HF_HUB_OFFLINE is set"):
        pull()
    assert repository.asked == []
