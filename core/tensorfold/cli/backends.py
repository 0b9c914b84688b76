"""Which backend runs: the one that was asked for, or the one that suits this machine best."""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.contracts.backend import Backend, Suitability
from tensorfold.errors import PluginUnavailable

__all__ = ["choose_backend"]


def choose_backend(offered: Sequence[Backend], asked: str | None) -> tuple[Backend, Suitability]:
    """The best of those that can run here; of equal ones the first by name.

    Only the backends of plugins that are loaded are offered: with `--backend NAME` those of that plugin alone.

    Raises:
        PluginUnavailable: none can run here; every one's own reason is given.
    """
    named = [backend for backend in offered if backend.name == asked]
    suited: list[tuple[Backend, Suitability]] = []
    reasons: list[str] = []
    for backend in named or offered:
        try:
            suited.append((backend, backend.probe()))
        except PluginUnavailable as error:
            reasons.append(f"{backend.name}: {error}")
    if not suited:
        why = "; ".join(reasons) or "none is installed (see `tensorfold plugins`)"
        raise PluginUnavailable(f"no backend can run on this machine: {why}")
    return max(suited, key=lambda pair: pair[1].score)
