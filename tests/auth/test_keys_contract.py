"""The key source keeps the contract of all auth sources."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from tensorfold.contracts.auth import AuthSource
from tensorfold.testing.auth import AuthSourceContract
from tensorfold_auth_keys.source import KeySource


class TestKeys(AuthSourceContract):
    accepted: ClassVar = {"sk-flag": "cli-1", "sk-env": "env-1", "sk-file": "alice", "sk-ключ": "file-1"}

    @pytest.fixture
    def source(self, tmp_path: Path) -> AuthSource:
        file = tmp_path / "keys"
        file.touch(0o600)
        file.write_text("alice: sk-file\nsk-ключ\n")
        return KeySource(flags=["sk-flag"], variable=["sk-env"], file=file)
