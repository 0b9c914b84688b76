"""Who waits for whose prompt: one request computes a shared beginning, the others begin where it was kept."""

from __future__ import annotations

from collections.abc import Iterable

from tensorfold.engine.active import ActiveRequest, Entry
from tensorfold.engine.kept import MOST, PrefixCache, shares
from tensorfold.engine.prefix import agreement

__all__ = ["Sharing"]


class Sharing:
    """What the requests in the engine have in common."""

    def __init__(self, prefixes: PrefixCache) -> None:
        self._prefixes = prefixes
        self._shared: dict[ActiveRequest, dict[ActiveRequest, int]] = {}
        """For each request that shares its beginning, with whom that came before it, and the last start that both have."""

    def enter(self, active: ActiveRequest, others: Iterable[ActiveRequest]) -> None:
        """A request has come; what it shares with another is kept when that one comes to it."""
        job = active.job
        active.keep |= self._prefixes.enter(job)
        if job.whole or not active.keep:
            return
        shared: dict[ActiveRequest, int] = {}
        for other in others:
            start = shares(job.chunks, other.job.chunks, agreement(job.ids, other.job.ids))
            if start and (start in other.keep or len(other.keep) < MOST):
                other.keep.add(start)
                shared[other] = start
        if shared:
            self._shared[active] = shared

    def leave(self, active: ActiveRequest) -> None:
        """A request is over."""
        self._shared.pop(active, None)
        for shared in self._shared.values():
            shared.pop(active, None)

    def waits(self, entry: Entry, prefilling: Iterable[Entry]) -> bool:
        """Whether a prompt that has not begun should wait for one that is being computed."""
        shared = self._shared.get(entry.active)
        if not shared or entry.computed:
            return False
        furthest = max(
            (
                shared[leader.active]
                for leader in prefilling
                if leader.active in shared and _leads(leader, entry, shared)
            ),
            default=0,
        )
        return furthest > 0 and furthest > self._prefixes.length(entry.active.job)


def _leads(leader: Entry, entry: Entry, shared: dict[ActiveRequest, int]) -> bool:
    """Whether the leader has yet to come to what both share. Foreground does not wait for background."""
    if leader.priority == "background" and entry.priority == "foreground":
        return False
    return leader.computed < shared[leader.active]
