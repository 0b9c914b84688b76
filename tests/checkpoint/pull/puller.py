"""`tensorfold pull`, without its command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tensorfold.plugins import Plugins, Wanted
from tensorfold_extra_checkpoints.pull import Pull


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


class Puller:
    """Pulls from one server into one cache."""

    def __init__(self, url: str, cache: Path, **environment: str) -> None:
        self.cache = cache
        self.environment = {"HF_ENDPOINT": url, "HF_HUB_CACHE": str(cache), "HF_HOME": str(cache.parent), **environment}
        self.said = Said()
        self.head = 1 << 25
        """Bytes from which a GGUF file is told."""

    def __call__(self, name: str = "org/tiny", revision: str = "main", files: tuple[str, ...] = ()) -> Path:
        families = [offered.value for offered in Plugins(Wanted()).families()]
        return Pull(self.environment, families, self.said, lambda seconds: None, self.head).run(name, revision, files)
