"""What all plugins offer together: typed, free of conflicts, asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tensorfold.errors import PluginConflict, PluginNotFound
from tensorfold.plugins.loading import Offered, Plugins

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tensorfold.contracts.auth import AuthSource
    from tensorfold.contracts.backend import Backend
    from tensorfold.contracts.dialect import Dialect
    from tensorfold.contracts.family import ModelFamily
    from tensorfold.contracts.observe import Observer
    from tensorfold.contracts.policy import RequestFilter, SchedulerPolicy
    from tensorfold.contracts.settings import PluginSettings

__all__ = ["Catalog"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Catalog:
    """Every plugin's offers, each in the order of its name."""

    families: tuple[ModelFamily, ...]
    backends: tuple[Backend, ...]
    dialects: tuple[Dialect, ...]
    auth_sources: tuple[AuthSource, ...]
    policies: tuple[SchedulerPolicy, ...]
    filters: tuple[RequestFilter, ...]
    observers: tuple[Observer, ...]
    collectors: tuple[Collector, ...]
    owners: Mapping[str, str]
    """Who offers `dialect NAME`, for messages about conflicts that show only when the application is built."""

    @classmethod
    def of(cls, plugins: Plugins, settings: PluginSettings) -> Catalog:
        """Ask every hook whose answers a server needs.

        Raises:
            PluginConflict: two plugins claim one name, path or architecture; both distributions are named.
            PluginNotFound: a dialect or backend that was asked for is offered by none of the loaded plugins.
            PluginFailed: a hook raised.
        """
        families = _distinct("model family", plugins.families(), _name)
        _claims("GGUF architecture", families, lambda family: (each.architecture for each in family.gguf))
        dialects = _distinct("dialect", plugins.dialects(settings), _name)
        _claims("path", dialects, _paths)
        backends = _distinct("backend", plugins.backends(), _name)
        _check_asked(plugins, dialects, backends)
        return cls(
            families=_values(families),
            backends=_values(backends),
            dialects=_values(dialects),
            auth_sources=_values(_distinct("auth source", plugins.auth_sources(settings), _name)),
            policies=_values(_distinct("scheduler policy", plugins.policies(settings), _name)),
            filters=_values(_distinct("request filter", plugins.filters(settings), _name)),
            observers=_values(plugins.observers(settings)),
            collectors=_values(plugins.collectors(settings)),
            owners={f"dialect {each.value.name}": each.plugin.origin for each in dialects},
        )


def _name(value: ModelFamily | Dialect | Backend | AuthSource | SchedulerPolicy | RequestFilter) -> str:
    return value.name


def _paths(dialect: Dialect) -> Iterator[str]:
    yield from (endpoint.path for endpoint in dialect.endpoints)
    yield from (inquiry.path for inquiry in dialect.inquiries)


def _distinct(what: str, offered: Sequence[Offered[T]], name: Callable[[T], str]) -> Sequence[Offered[T]]:
    """The same offers in the order of their names, of which no two are equal."""
    _claims(what, offered, lambda value: (name(value),))
    return sorted(offered, key=lambda each: name(each.value))


def _claims(what: str, offered: Sequence[Offered[T]], keys: Callable[[T], Iterable[str]]) -> None:
    owners: dict[str, Offered[T]] = {}
    for each in offered:
        for key in keys(each.value):
            other = owners.setdefault(key, each)
            if other is not each:
                raise PluginConflict(
                    f"{other.plugin} and {each.plugin} both claim the {what} {key}: "
                    f"start with --plugin no:{each.plugin.id} or --plugin no:{other.plugin.id}"
                )


def _check_asked(plugins: Plugins, dialects: Sequence[Offered[Dialect]], backends: Sequence[Offered[Backend]]) -> None:
    """What was asked for by name may be the name of a plugin or of what a plugin offers."""
    wanted = plugins.wanted
    for name in wanted.dialects:
        _offered(f"dialects/{name}", name, dialects, _name)
    if wanted.backend is not None:
        _offered(f"backends/{wanted.backend}", wanted.backend, backends, _name)


def _offered(id: str, name: str, offered: Sequence[Offered[T]], name_of: Callable[[T], str]) -> None:
    names = {name_of(each.value) for each in offered}
    if name not in names and not any(each.plugin.id == id for each in offered):
        raise PluginNotFound(f"no plugin {id}; the loaded plugins offer {', '.join(sorted(names)) or 'none'}")


def _values(offered: Sequence[Offered[T]]) -> tuple[T, ...]:
    return tuple(each.value for each in offered)
