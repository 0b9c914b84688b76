"""What a starting server says on stderr: its progress, and one block when it is ready."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, TextIO

from tensorfold.cli.amounts import as_rows
from tensorfold.cli.assemble import Assembled
from tensorfold.contracts.auth import AuthSource

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["StartupDisplay", "ready_block", "tell"]

_MIB = 1024**2


def tell(text: str, stream: TextIO | None = None) -> None:
    """A line on stderr, or on another stream; lost when its disk is full or its reader gone, which stops no server."""
    with contextlib.suppress(OSError):
        print(text, file=stream or sys.stderr, flush=True)


class StartupDisplay:
    """Progress on a terminal as one moving line, elsewhere as one line a stage. Use as a context manager."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._stream.isatty() and not self._quiet:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                console=Console(file=self._stream),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task("starting", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def stage(self, text: str) -> None:
        """What begins now."""
        if self._progress is not None and self._task is not None:
            self._progress.reset(self._task, description=text, total=None)
        elif not self._quiet:
            tell(text, self._stream)

    def weights(self, done: int, total: int) -> None:
        """Stored bytes of weights read so far, and in all; a terminal shows a bar."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=total)


def ready_block(assembled: Assembled, url: str, auth: Sequence[AuthSource]) -> str:
    """The lines that say what is served, where, and to whom."""
    model, memory = assembled.model, assembled.memory
    guards = [source.description for source in auth if source.guards]
    names = ", ".join([model.id, *model.aliases])
    rows = {
        "model": f"{names} ({_count(model.parameters)} parameters)" if model.parameters else names,
        "from": str(assembled.path),
        "family": f"{model.family}: {assembled.claim}",
        "backend": f"{model.backend} on {assembled.device}, {assembled.dtype}",
        "weights": _weights(assembled),
        "window": f"{model.window} tokens{_shortened(assembled)}, {_counted(memory.lanes, 'reply', 'replies')} at once",
        "memory": f"{memory.bytes / _MIB:,.0f} MiB of states, {memory.positions:,} positions",
        "rows": _rows(assembled),
        "address": url if url.startswith("unix:") else f"{url}/v1",
        "dialects": ", ".join(dialect.name for dialect in assembled.catalog.dialects) or "none",
        "auth": ", ".join(guards) or "no keys: whoever reaches the address may use it",
    }
    if assembled.drafter is not None:
        rows["drafter"] = str(assembled.drafter)
    return "\n".join(as_rows(rows))


def _weights(assembled: Assembled) -> str:
    """What is stored, and what becomes of matrices that the backend has no kernel for."""
    weights = assembled.weights
    count = weights.expanded + (0 if assembled.keeps_codes else weights.affine)
    if not count:
        return weights.text
    return f"{weights.text}; {_counted(count, 'matrix is', 'matrices are')} expanded to {assembled.dtype} on load"


def _rows(assembled: Assembled) -> str:
    """How far replies are kept apart on this machine."""
    independence = assembled.independence
    if independence.problem is not None:
        narrowed = "one row a step: no drafts, no shared rounds" if independence.rows == 1 else "fewer rows a step"
        return f"{narrowed}, at most {independence.rows}, since on this machine {independence.problem}"
    checked = f"checked bit for bit up to {independence.tried}" if independence.tried else "not checked"
    return f"up to {independence.rows} a step, {checked}"


def _shortened(assembled: Assembled) -> str:
    model, memory = assembled.model, assembled.memory
    if model.window == model.trained_window:
        return ""
    why = "as memory allows" if memory.shortened else "as asked"
    return f" ({why}; the checkpoint's is {model.trained_window})"


def _count(number: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
