"""What the server's configuration tells the engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tensorfold.ir import Sampling

__all__ = ["EngineSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Every value has a default that serves."""

    window: int | None = None
    """Prompt and reply together, in tokens; None: the checkpoint's own. Never more than the state memory holds."""
    max_tokens: int = 4096
    """The reply limit of requests that name none; cut to the room left in the window."""
    sampling: Sampling = field(default_factory=Sampling)
    """Defaults that go before the checkpoint's."""
    seed_salt: int = 0
    """Mixed into every key that is derived from a prompt; 0 leaves them as they are."""
    decode_share: float = 0.25
    """The part of each prompt chunk's time that running replies get as rounds; 0: whole prompts, then replies."""
    growth: int = 2048
    """Positions that a reply reserves ahead of itself beside others."""
    prefix_bytes: int | None = None
    """The most device memory of kept prefixes; 0: none are kept; None: whatever nobody else needs."""
    prefix_copies: int | None = None
    """Of that, the most outside any page: copies of fixed-size states; None: no bound of its own."""
    spill_folder: Path | None = None
    """Where prefixes go that memory has no room for; None: nowhere."""
    spill_bytes: int = 0
    """The most bytes of files there."""
    rows: int = 64
    """The most rows in one step of running replies, guesses included; where more replies run they take turns."""
    head_depth: int = 3
    """The most guesses of the checkpoint's own draft head that follow each other; 0: it is not used."""
    round_limit: float = 120.0
    """Seconds after which a round of replies that has not returned counts as stuck."""
    chunk_limit: float = 900.0
    """The same for a prompt's chunk."""
    stop_limit: float = 5.0
    """Seconds that `close` waits for the round in progress once everything is aborted."""
    front_threads: int = 2
    """Threads that render and tokenize."""
    front_queue: int = 64
    """Requests that may wait for one of them, or be worked on."""
    compile_threads: int = 2
    """Threads that compile grammars."""
    compile_queue: int = 16
    """Requests that may wait for one of them, or be worked on."""
