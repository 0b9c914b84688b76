"""`tensorfold pull`: bring a model from the Hub into its cache, as far as it can be run here."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, Protocol

from tensorfold.contracts.family import ModelFamily
from tensorfold.errors import CheckpointError, CheckpointNotFound, ConfigError
from tensorfold_extra_checkpoints.download import download
from tensorfold_extra_checkpoints.gguf_head import HEAD, check_gguf_head
from tensorfold_extra_checkpoints.hub_cache import HubCache
from tensorfold_extra_checkpoints.hub_files import Hub, Listing, RemoteFile
from tensorfold_extra_checkpoints.names import NAME, TEXTS, UNWANTED, WANTED

__all__ = ["Display", "Pull"]

REVISION: Final = re.compile(r"[\w.-]+(/[\w.-]+)*")
SMALL: Final = 64 * 1024 * 1024
"""Bytes up to which a JSON file is a config or a tokenizer, and is looked at before weights are brought."""


class Display(Protocol):
    """Told how far it is."""

    def begin(self, path: str, size: int) -> Callable[[int], None]:
        """A file begins; what is given back is told how many of its bytes are there."""
        ...

    def say(self, text: str) -> None:
        """A line for the user."""
        ...


class Pull:
    """One command's work."""

    def __init__(
        self,
        environment: Mapping[str, str],
        families: Sequence[ModelFamily] | None,
        display: Display,
        pause: Callable[[float], None] = time.sleep,
        head: int = HEAD,
    ) -> None:
        """
        Args:
            families: what none of them runs is refused before its weights are brought; None: nobody asks.
            pause: waits so many seconds before a broken download is taken up.
            head: bytes of a GGUF file looked at first.
        """
        self._head = head
        self._pause = pause
        self._hub = Hub(environment)
        self._cache = HubCache(environment)
        self._families = families
        self._display = display

    def run(self, name: str, revision: str = "main", files: Sequence[str] = (), *, weights: bool = True) -> Path:
        """Bring a model; where it is.

        Args:
            files: patterns of file names; none: what a checkpoint in safetensors needs.
            weights: whether those are brought too.

        Raises:
            ConfigError: the name or revision is none.
            CheckpointError: it is not there, cannot be run, cannot be brought, or there is no room for it.
        """
        if not NAME.fullmatch(name) or ".." in name:
            raise ConfigError(f"{name} is no name on the Hub: ORG/NAME")
        if not REVISION.fullmatch(revision) or ".." in revision:
            raise ConfigError(f"{revision} is no revision: a branch, a tag or a commit")
        listing = self._hub.listing(name, revision)
        wanted = _wanted(listing, files, weights)
        first = [file for file in wanted if file.path.endswith((".json", ".jinja")) and file.size <= SMALL]
        for file in first:
            self._bring(listing, file)
        self._check_runs(listing)
        missing = [file for file in wanted if not self._is_there(listing, file)]
        self._check_gguf(listing, missing)
        self._check_room(missing)
        for file in missing:
            self._bring(listing, file)
        self._cache.name_commit(name, revision, listing.commit)
        folder = self._cache.snapshot(name, listing.commit)
        gguf = [file for file in wanted if file.path.endswith(".gguf")]
        return folder / gguf[0].path if gguf else folder

    def _check_runs(self, listing: Listing) -> None:
        """Refuse what no family runs before its weights are brought."""
        if self._families is None:
            return
        from tensorfold.checkpoint.drafters import find_drafter
        from tensorfold.checkpoint.open import claim_folder

        folder = self._cache.snapshot(listing.name, listing.commit)
        if not (folder / "config.json").exists():
            return
        if (found := find_drafter(folder, self._families)) is not None:
            self._display.say(f"{listing.name} drafts for {found.drafter.target}: --draft-model {listing.name}")
        else:
            opened = claim_folder(folder, self._families)
            self._display.say(f"{listing.name} is run by {opened.family.name}: {opened.claim.reason}")

    def _check_gguf(self, listing: Listing, missing: Sequence[RemoteFile]) -> None:
        for file in missing:
            if self._families is not None and file.path.endswith(".gguf"):
                url = self._hub.file_url(listing, file)
                if (told := check_gguf_head(self._hub, url, file, self._families, self._head)) is not None:
                    self._display.say(told)

    def _check_room(self, missing: Sequence[RemoteFile]) -> None:
        needed = sum(file.size for file in missing)
        folder = self._cache.folder
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        if needed > free:
            raise CheckpointError(
                f"{needed / 1e9:,.1f} GB are to be downloaded, and {folder} has {free / 1e9:,.1f} GB free:"
                " make room, or set HF_HOME to another disk"
            )

    def _is_there(self, listing: Listing, file: RemoteFile) -> bool:
        """Whether the content is in the cache, linked or not; its size tells a whole one."""
        blob = self._cache.blob(listing.name, file.digest)
        there = blob.is_file() and blob.stat().st_size == file.size
        if there:
            self._link(listing, file)
        return there

    def _bring(self, listing: Listing, file: RemoteFile) -> None:
        if self._is_there(listing, file):
            return
        blob = self._cache.blob(listing.name, file.digest)
        progress = self._display.begin(file.path, file.size)
        download(self._hub, self._hub.file_url(listing, file), file, blob, progress, self._pause)
        self._link(listing, file)

    def _link(self, listing: Listing, file: RemoteFile) -> None:
        try:
            self._cache.link(listing.name, listing.commit, file.path, file.digest)
        except OSError as error:
            raise CheckpointError(f"{self._cache.folder} cannot be written: {error.strerror}") from None


def _wanted(listing: Listing, patterns: Sequence[str], weights: bool) -> list[RemoteFile]:
    chosen = [
        file
        for file in listing.files
        if any(fnmatch(file.path, pattern) for pattern in patterns or (WANTED if weights else TEXTS))
        and (patterns or not any(fnmatch(file.path, pattern) for pattern in UNWANTED))
    ]
    paths = [file.path for file in listing.files]
    if patterns and not chosen:
        raise CheckpointNotFound(f"{listing.name} has no file {', '.join(patterns)}; it has {', '.join(paths)}")
    if patterns or "config.json" in paths:
        return chosen
    if gguf := [path for path in paths if path.endswith(".gguf")]:
        raise CheckpointNotFound(
            f"{listing.name} holds GGUF files: choose one with --file, of {', '.join(sorted(gguf, key=os.path.basename))}"
        )
    raise CheckpointNotFound(
        f"{listing.name} has no config.json and no GGUF file: it is no checkpoint that is run here"
    )
