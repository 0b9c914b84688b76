"""The Hub's cache on this machine: the folder that all of its programs share.

`models--ORG--NAME/blobs/DIGEST` holds contents, `snapshots/COMMIT/PATH` links to them, `refs/REVISION` names commits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tensorfold.contracts.local import LocalCheckpoint
from tensorfold_extra_checkpoints.complete import is_complete

__all__ = ["HubCache"]

_PREFIX = "models--"


class HubCache:
    """One cache."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """It is where the Hub's variables say."""
        self.folder = cache_folder(environment)

    def blob(self, name: str, digest: str) -> Path:
        """Where a file's content is or would be."""
        return self._model(name) / "blobs" / digest

    def snapshot(self, name: str, commit: str) -> Path:
        """Where a commit's files are or would be."""
        return self._model(name) / "snapshots" / commit

    def link(self, name: str, commit: str, path: str, digest: str) -> None:
        """Give a content its name in a snapshot.

        Raises:
            OSError: it cannot be.
        """
        link = self.snapshot(name, commit) / path
        link.parent.mkdir(parents=True, exist_ok=True)
        target = os.path.relpath(self.blob(name, digest), link.parent)
        if link.is_symlink() and os.readlink(link) == target:
            return
        link.unlink(missing_ok=True)
        link.symlink_to(target)

    def name_commit(self, name: str, revision: str, commit: str) -> None:
        """From here on the revision is this commit.

        Raises:
            OSError: it cannot be written.
        """
        ref = self._model(name) / "refs" / revision
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(commit, encoding="ascii")

    def current(self, name: str, *, weights: bool = True) -> Path | None:
        """The snapshot that `main` names, if all of it is there."""
        ref = self._model(name) / "refs" / "main"
        try:
            snapshot = self.snapshot(name, ref.read_text(encoding="ascii").strip())
        except (OSError, UnicodeDecodeError):
            return None
        return snapshot if is_complete(snapshot, weights=weights) else None

    def checkpoints(self) -> Iterator[LocalCheckpoint]:
        """Every model that some revision names."""
        for model in sorted(self.folder.glob(f"{_PREFIX}*--*")):
            for ref in sorted(path for path in (model / "refs").rglob("*") if path.is_file()):
                snapshot = model / "snapshots" / ref.read_text(encoding="ascii", errors="replace").strip()
                if snapshot.is_dir():
                    yield _checkpoint(model, snapshot, ref.relative_to(model / "refs").as_posix())

    def _model(self, name: str) -> Path:
        return self.folder / f"{_PREFIX}{name.replace('/', '--')}"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """The cache's folder, which need not be there."""
    if given := environment.get("HF_HUB_CACHE"):
        return Path(os.path.expanduser(given))
    if home := environment.get("HF_HOME"):
        return Path(os.path.expanduser(home)) / "hub"
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)) / "huggingface" / "hub"


def _checkpoint(model: Path, snapshot: Path, revision: str) -> LocalCheckpoint:
    name = model.name.removeprefix(_PREFIX).replace("--", "/", 1)
    weights = sorted(file for file in snapshot.rglob("*.gguf") if file.exists())
    folder = (snapshot / "config.json").exists()
    # The files of a GGUF repository are served by their paths.
    usable = name if folder and revision == "main" else str(weights[0] if weights and not folder else snapshot)
    files = [file for file in snapshot.rglob("*") if file.is_file()]
    return LocalCheckpoint(
        name=usable,
        path=snapshot,
        bytes=sum(file.stat().st_size for file in files),
        source="Hub cache",
        complete=is_complete(snapshot) if folder else bool(weights),
    )
