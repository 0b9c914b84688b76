"""What the user says about plugins, before any is imported."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tensorfold.errors import ConfigError
from tensorfold.plugins.found import KINDS, is_id

__all__ = ["Wanted"]

_NO = "no:"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The user's wishes. Nothing said: what is installed and on by default."""

    dialects: tuple[str, ...] = ()
    """Only these dialects; empty: those that are on by default."""
    backend: str | None = None
    """Only this backend; None: the one that suits the machine best."""
    plugins: tuple[str, ...] = ()
    """`MODULE`, `./FILE.py`, `./FOLDER` of a project or package, `KIND/NAME` of an installed plugin that is off by default, or `no:KIND/NAME`."""

    def __post_init__(self) -> None:
        for text in self.plugins:
            if not text.removeprefix(_NO).strip():
                raise ConfigError("--plugin is empty, and must be MODULE, FILE.py, KIND/NAME or no:KIND/NAME")
            if text.startswith(_NO) and not is_id(text.removeprefix(_NO)):
                raise ConfigError(
                    f"--plugin {text} must be no:KIND/NAME, where KIND is one of {', '.join(KINDS)} (no:dialects/openai)"
                )

    @property
    def blocked(self) -> frozenset[str]:
        """Ids that must not be imported."""
        return frozenset(text.removeprefix(_NO) for text in self.plugins if text.startswith(_NO))

    @property
    def ids(self) -> frozenset[str]:
        """Ids of installed plugins that were asked for, whichever option asked."""
        named = {text for text in self.plugins if is_id(text)}
        named.update(f"dialects/{name}" for name in self.dialects)
        if self.backend is not None:
            named.add(f"backends/{self.backend}")
        return frozenset(named)

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules asked for by their import name, in the order given."""
        return tuple(text for text in self._others if not _is_file(text))

    @property
    def files(self) -> tuple[Path, ...]:
        """Modules asked for by their file or folder, in the order given."""
        return tuple(Path(os.path.expanduser(text)) for text in self._others if _is_file(text))

    @property
    def _others(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys(text for text in self.plugins if not text.startswith(_NO) and not is_id(text)),
        )


def _is_file(text: str) -> bool:
    return text.endswith(".py") or text.startswith((".", "/", "~"))
