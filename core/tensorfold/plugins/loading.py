"""Imports the chosen plugins, checks them, and asks them: the one place where pluggy's untyped calls live."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import pluggy

from tensorfold import hookspecs
from tensorfold.contracts.commands import Command
from tensorfold.contracts.local import LocalCheckpoint
from tensorfold.contracts.settings import PluginSettings, SettingsTable
from tensorfold.errors import PluginError, PluginFailed, PluginUnavailable, TensorfoldError
from tensorfold.plugins.choosing import Choice, choose
from tensorfold.plugins.found import FolderModule, Found, Kind, find_installed
from tensorfold.plugins.wanted import Wanted

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tensorfold.contracts.auth import AuthSource
    from tensorfold.contracts.backend import Backend
    from tensorfold.contracts.dialect import Dialect
    from tensorfold.contracts.examples import Example
    from tensorfold.contracts.family import ModelFamily
    from tensorfold.contracts.observe import Observer
    from tensorfold.contracts.policy import RequestFilter, SchedulerPolicy

__all__ = ["Offered", "PluginState", "Plugins", "State"]

T = TypeVar("T")

State: TypeAlias = Literal["loaded", "disabled", "failed", "unavailable"]


@dataclass(frozen=True, slots=True)
class PluginState:
    """What became of one plugin, as `tensorfold plugins` prints it."""

    kind: Kind
    name: str
    distribution: str
    version: str
    state: State
    reason: str
    """Why it is not loaded; empty when it is."""


@dataclass(frozen=True, slots=True)
class Offered(Generic[T]):
    """One answer to a hook, and whose it is."""

    value: T
    plugin: Found


@dataclass(slots=True)
class _Entry:
    """A plugin and its state, which changes once at most: when it fails or turns out to be unavailable."""

    choice: Choice
    module: object | None = None
    state: State = "loaded"
    reason: str = ""


class Plugins:
    """The plugins of one program run. Loaded when made; asked once each afterwards."""

    def __init__(self, wanted: Wanted, installed: Sequence[Found] | None = None) -> None:
        """Import what is wanted.

        Raises:
            PluginError: a name that nobody offers, two claims to one name, or a plugin that was asked for and fails.
            ConfigError: a plugin is asked for and blocked.
        """
        self.wanted = wanted
        self._manager = _manager()
        self._entries = [_Entry(each) for each in choose(find_installed() if installed is None else installed, wanted)]
        for entry in self._entries:
            self._load(entry)

    @property
    def states(self) -> tuple[PluginState, ...]:
        """Every plugin, installed or asked for, in the order of their ids."""
        found = ((entry.choice.found, entry) for entry in self._entries)
        return tuple(
            PluginState(each.kind, each.name, each.distribution, each.version, entry.state, entry.reason)
            for each, entry in sorted(found, key=lambda pair: (pair[0].id, pair[0].distribution))
        )

    # ---- the questions, typed --------------------------------------------------------------------------------

    def settings(self) -> tuple[Offered[SettingsTable], ...]:
        """Asked before all others."""
        return self._answers("tensorfold_settings", _of_type(SettingsTable))

    def commands(self) -> tuple[Offered[Command], ...]:
        return self._answers("tensorfold_commands", _of_type(Command))

    def families(self) -> tuple[Offered[ModelFamily], ...]:
        return self._answers("tensorfold_model_families", _named)

    def backends(self) -> tuple[Offered[Backend], ...]:
        return self._answers("tensorfold_backends", _named)

    def dialects(self, settings: PluginSettings) -> tuple[Offered[Dialect], ...]:
        return self._answers("tensorfold_dialects", _named, settings=settings)

    def auth_sources(self, settings: PluginSettings) -> tuple[Offered[AuthSource], ...]:
        return self._answers("tensorfold_auth_sources", _named, settings=settings)

    def policies(self, settings: PluginSettings) -> tuple[Offered[SchedulerPolicy], ...]:
        return self._answers("tensorfold_scheduler_policies", _named, settings=settings)

    def filters(self, settings: PluginSettings) -> tuple[Offered[RequestFilter], ...]:
        return self._answers("tensorfold_request_filters", _named, settings=settings)

    def observers(self, settings: PluginSettings) -> tuple[Offered[Observer], ...]:
        return self._answers("tensorfold_observers", _anything, settings=settings)

    def collectors(self, settings: PluginSettings) -> tuple[Offered[Collector], ...]:
        return self._answers("tensorfold_collectors", _anything, settings=settings)

    def examples(self) -> tuple[Offered[Example], ...]:
        """Asked by `tensorfold check` alone."""
        return self._answers("tensorfold_examples", _anything)

    def find_checkpoint(self, name: str, *, weights: bool = True) -> Path | None:
        """The first answer that is not None; plugins that were asked for come before installed ones."""
        for entry, answer in self._ask("tensorfold_find_checkpoint", name=name, weights=weights):
            path = self._guard(entry, "tensorfold_find_checkpoint", answer)
            if path is None:
                continue
            if not isinstance(path, Path):
                raise PluginFailed(_wrong(entry, "tensorfold_find_checkpoint", path, "a pathlib.Path"))
            return path
        return None

    def list_checkpoints(self) -> tuple[Offered[LocalCheckpoint], ...]:
        return self._answers("tensorfold_list_checkpoints", _of_type(LocalCheckpoint))

    # ---- loading ---------------------------------------------------------------------------------------------

    def _load(self, entry: _Entry) -> None:
        found = entry.choice.found
        if entry.choice.off is not None:
            entry.state, entry.reason = "disabled", entry.choice.off
            return
        try:
            module = _import(found)
            _check(module)
        except PluginUnavailable as error:
            self._leave_out(entry, "unavailable", str(error), error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (a module may raise anything, or call sys.exit)
            self._leave_out(entry, "failed", _describe(error), error)
        else:
            entry.module = module
            self._manager.register(module, name=found.id)

    def _leave_out(self, entry: _Entry, state: State, reason: str, error: BaseException) -> None:
        """Keep the reason; stop the program when the plugin was asked for."""
        entry.state, entry.reason = state, reason
        if entry.module is not None:
            self._manager.unregister(entry.module)
            entry.module = None
        if entry.choice.asked:
            raise PluginFailed(f"plugin {entry.choice.found} cannot be loaded: {reason}") from error

    # ---- asking ----------------------------------------------------------------------------------------------

    def _answers(
        self, hook: str, check: Callable[[object], str | None], **arguments: object
    ) -> tuple[Offered[Any], ...]:
        """Every plugin's answers to a hook that adds up, in the order of the plugins' ids."""
        offered: dict[str, list[Offered[Any]]] = {}
        for entry, answer in self._ask(hook, **arguments):
            values = self._guard(entry, hook, partial(_listed, answer))
            for value in values or ():
                if (expected := check(value)) is not None:
                    raise PluginFailed(_wrong(entry, hook, value, expected))
                offered.setdefault(entry.choice.found.id, []).append(Offered(value, entry.choice.found))
        return tuple(each for id in sorted(offered) for each in offered[id])

    def _ask(self, hook: str, **arguments: object) -> Iterator[tuple[_Entry, Callable[[], Any]]]:
        """Each plugin that answers a hook with a call of it alone, so that a failure has a name."""
        caller = getattr(self._manager.hook, hook)
        by_module = {id(entry.module): entry for entry in self._entries if entry.module is not None}
        every = self._manager.get_plugins()
        for implementation in reversed(caller.get_hookimpls()):
            module = implementation.plugin
            alone = self._manager.subset_hook_caller(hook, remove_plugins=every - {module})
            yield by_module[id(module)], partial(alone, **arguments)

    def _guard(self, entry: _Entry, hook: str, answer: Callable[[], T]) -> T | None:
        """The answer; None from a plugin that now says it is unavailable.

        Raises:
            PluginFailed: the hook raised, or the plugin was asked for and is unavailable.
            TensorfoldError: the hook raised one: it is written for the user.
        """
        try:
            return answer()
        except PluginUnavailable as error:
            self._leave_out(entry, "unavailable", str(error), error)
            return None
        except TensorfoldError:
            raise
        except Exception as error:
            raise PluginFailed(f"plugin {entry.choice.found}: {hook} raised {_describe(error)}") from error


def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager("tensorfold")
    manager.add_hookspecs(hookspecs)
    return manager


def _import(found: Found) -> object:
    match found.source:
        case EntryPoint():
            return found.source.load()
        case FolderModule(root, module):
            if str(root) not in sys.path:
                sys.path.insert(0, str(root))
            return importlib.import_module(module)
        case Path():
            return _import_file(found.source)
        case str():
            return importlib.import_module(found.source)


def _import_file(file: Path) -> object:
    """Run a file as a module of a private name; `sys.path` stays as it is."""
    file = file.resolve()
    if not file.is_file():
        raise PluginError(f"there is no file {file}")
    name = f"_tensorfold_plugin_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise PluginError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and msgspec look their module up by name while the file runs.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _check(module: object) -> None:
    """Refuse a plugin that answers no hook, one that we do not ask, or with arguments that we do not give.

    Tried on a manager of its own, since pluggy keeps the half of a plugin that it had registered.

    Raises:
        PluginFailed: what is wrong.
        pluggy.PluginValidationError: the same, in pluggy's words.
    """
    trial = _manager()
    trial.register(module)
    trial.check_pending()
    if not trial.get_hookcallers(module):
        raise PluginFailed("it answers no hook: are its functions marked with tensorfold.hookimpl?")


def _describe(error: BaseException) -> str:
    if isinstance(error, TensorfoldError | pluggy.PluginValidationError):
        return " ".join(str(error).split())
    return f"{type(error).__name__}: {error}"


def _wrong(entry: _Entry, hook: str, value: object, expected: str) -> str:
    return f"plugin {entry.choice.found}: {hook} answered with {value!r}, and must answer with {expected}"


def _listed(answer: Callable[[], list[Iterable[Any]]]) -> list[Any]:
    """One plugin's answer as a list, a generator run to its end; pluggy leaves None out."""
    return [value for values in answer() for value in values]


def _of_type(expected: type) -> Callable[[object], str | None]:
    return lambda value: None if isinstance(value, expected) else f"{expected.__name__} objects"


def _named(value: object) -> str | None:
    named = not inspect.isclass(value) and isinstance(getattr(value, "name", None), str)
    return None if named else "objects that have a name"


def _anything(value: object) -> str | None:
    return None
