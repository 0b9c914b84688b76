"""Who may call which path, and whose envelope errors on it have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorfold.contracts.dialect import Dialect, ErrorEncoder, Scope
from tensorfold.errors import PluginConflict

__all__ = ["Route", "Routes"]


@dataclass(frozen=True, slots=True)
class Route:
    """One path."""

    path: str
    """A template (`/v1/models/{id:path}`)."""
    scope: Scope
    errors: ErrorEncoder
    owner: str
    """Who claims it, for messages (`dialect openai`)."""

    @property
    def segments(self) -> tuple[str, ...]:
        """The template, cut at its slashes; a variable segment is empty."""
        parts = self.path.strip("/").split("/")
        return tuple("" if part.startswith("{") else part for part in parts)


class Routes:
    """Every path of an application."""

    def __init__(self, routes: Sequence[Route], default: ErrorEncoder) -> None:
        """`default`: the envelope on paths that are nearer to no other.

        Raises:
            PluginConflict: two claim one path.
        """
        self._default = default
        self._routes = tuple(routes)
        self._by_path = {route.path: route for route in routes}
        claimed: dict[tuple[str, ...], Route] = {}
        for route in routes:
            other = claimed.setdefault(route.segments, route)
            if other is not route:
                raise PluginConflict(f"{other.owner} and {route.owner} both claim the path {route.path}")

    def of(self, template: str) -> Route:
        """The route of a template."""
        return self._by_path[template]

    def nearest(self, path: str) -> ErrorEncoder:
        """The envelope for a path, known or not: that of the route which shares most leading segments."""
        wanted = path.strip("/").split("/")
        best = max((_shared(route.segments, wanted) for route in self._routes), default=0)
        nearest = [route.errors for route in self._routes if best and _shared(route.segments, wanted) == best]
        return nearest[0] if nearest and self._default not in nearest else self._default


def _shared(template: Sequence[str], path: Sequence[str]) -> int:
    count = 0
    for ours, theirs in zip(template, path, strict=False):
        if ours not in ("", theirs):
            break
        count += 1
    return count


def default_errors(dialects: Sequence[Dialect], preferred: str, fallback: ErrorEncoder) -> ErrorEncoder:
    """The envelope of the preferred dialect, or of the first by name, or the core's own when there is none."""
    by_name = {dialect.name: dialect.errors for dialect in dialects}
    return by_name.get(preferred) or next((by_name[name] for name in sorted(by_name)), fallback)
