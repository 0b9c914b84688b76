"""Who writes files: each place is known, and what holds users' words or keys is for its owner alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PRIVATE = {
    "core/tensorfold/engine/spill.py": "the folder of kept prompts",
    "core/tensorfold/engine/spill_file.py": "kept prompts",
    "core/tensorfold/http/request_log.py": "requests, with their prompts",
    "core/tensorfold/cli/service/launchd.py": "the folder of a service's log",
    "core/tensorfold/cli/service/programs.py": "a service's command line",
    "plugins/auth/tensorfold_auth_keys/key_file.py": "digests of keys",
}
"""Modules that write what others must not read."""

PUBLIC = {
    "core/tensorfold/cli/check.py": "a test of two lines, in a folder of its own that is deleted",
    "core/tensorfold/cli/new/writing.py": "a plugin's source, for its author to share",
    "core/tensorfold/cli/null_device.py": "the null device",
    "plugins/extras/tensorfold_extra_checkpoints/download.py": "a model that anybody may download",
    "plugins/extras/tensorfold_extra_checkpoints/gguf_head.py": "the head of such a model, in a folder that is deleted",
    "plugins/extras/tensorfold_extra_checkpoints/hub_cache.py": "the same, in the cache that other programs share",
    "plugins/backends/tensorfold_backend_cpu/kernels/cache.py": "compiled kernels",
    "plugins/backends/tensorfold_backend_cpu/kernels/warming.py": "which kernels are compiled",
}
"""Modules that write what anybody may read."""

_WRITING = {
    "write_text",
    "write_bytes",
    "mkdir",
    "touch",
    "mkdtemp",
    "mkstemp",
    "makedirs",
    "symlink_to",
    "TemporaryDirectory",
}


def writers() -> Iterator[tuple[str, ast.Call]]:
    """Every call in what we ship that makes or writes a file."""
    for folder in ("core", "plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if "/testing/" in name:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and _writes(node):
                    yield name, node


def _writes(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(ast.Name("os"), "open"):
            return "O_WRONLY" in ast.unparse(call) or "O_RDWR" in ast.unparse(call)
        case ast.Attribute(_, name) if name in _WRITING:
            return True
        case ast.Name("open") | ast.Attribute(_, "open"):
            modes = [*call.args[:2], *(each.value for each in call.keywords if each.arg == "mode")]
            texts = [each.value for each in modes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            return any(set(text) <= set("rwaxbt+") and set(text) & set("wax+") for text in texts)
        case _:
            return False


def test_every_place_that_writes_a_file_is_known() -> None:
    """A new one says here who may read what it writes."""
    assert {name for name, _ in writers()} == set(PRIVATE) | set(PUBLIC)


@pytest.mark.parametrize("name", PRIVATE)
def test_what_is_private_is_for_its_owner_alone(name: str) -> None:
    """Files are made with mode 0600 and folders with 0700; where a mode is not said, the folder above is no secret."""
    source = (ROOT / name).read_text(encoding="utf-8")
    calls = [ast.unparse(call) for other, call in writers() if other == name]
    assert "384" in " ".join(calls) or "448" in " ".join(calls) or "chmod(0o600)" in source or "chmod(0o700)" in source
