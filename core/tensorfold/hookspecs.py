"""The questions that plugins answer. Each is asked once, while the server starts; the answers are typed objects that the
core calls plainly from then on (a pluggy call costs about 70 plain calls, so none is made for a request).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

from tensorfold.contracts.settings import PluginSettings, SettingsTable

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from tensorfold.contracts.auth import AuthSource
    from tensorfold.contracts.backend import Backend
    from tensorfold.contracts.commands import Command
    from tensorfold.contracts.dialect import Dialect
    from tensorfold.contracts.examples import Example
    from tensorfold.contracts.family import ModelFamily
    from tensorfold.contracts.local import LocalCheckpoint
    from tensorfold.contracts.observe import Observer
    from tensorfold.contracts.policy import RequestFilter, SchedulerPolicy

hookspec = pluggy.HookspecMarker("tensorfold")


# ---- models and hardware ----------------------------------------------------------------------------------


@hookspec
def tensorfold_model_families() -> Iterable[ModelFamily]:
    """Which model families do you run?

    Asked when a model is about to be served or described. Two families with one name stop the start; of several
    that claim a checkpoint, the highest score runs it. Import nothing heavy to answer.

    Example::

        @hookimpl
        def tensorfold_model_families():
            yield LlamaFamily()
    """
    return ()


@hookspec
def tensorfold_backends() -> Iterable[Backend]:
    """Which hardware backends do you offer?

    Asked when a model is about to be served. The best `probe()` runs, or the one that `--backend` names. Raise
    `PluginUnavailable` when your library is missing, and say how to get it.
    """
    return ()


@hookspec(firstresult=True)
def tensorfold_find_checkpoint(name: str, weights: bool) -> Path | None:
    """Where on this machine is the checkpoint of this name?

    A folder or a file, or None when you do not know it; the first answer wins. `name` is what the user gave:
    a path, `ORG/NAME`, a name of your own; empty: the default model. You may download, and show progress; without
    `weights`, a folder with the configs alone will do.
    Stops at the first answer that is not None.
    """


@hookspec
def tensorfold_list_checkpoints() -> Iterable[LocalCheckpoint]:
    """Which checkpoints do you know of on this machine?

    Asked by `tensorfold models` alone. Look at what is on the disk, download nothing; each can be served by its name.
    """
    return ()


# ---- the wire ---------------------------------------------------------------------------------------------


@hookspec
def tensorfold_dialects(settings: PluginSettings) -> Iterable[Dialect]:
    """Which APIs do you speak?

    Asked when the application is built. Two dialects with one name or path stop the start, naming both
    distributions. Codecs are pure: no clock, no I/O, no engine.
    """
    return ()


@hookspec
def tensorfold_auth_sources(settings: PluginSettings) -> Iterable[AuthSource]:
    """Which callers can you recognize?

    Asked when the application is built. When any source guards, a route that is not open needs a principal from
    one of them.
    """
    return ()


# ---- what happens to a request ----------------------------------------------------------------------------


@hookspec
def tensorfold_scheduler_policies(settings: PluginSettings) -> Iterable[SchedulerPolicy]:
    """Which scheduling policies do you offer? `--scheduler NAME` picks one of all that are offered."""
    return ()


@hookspec
def tensorfold_request_filters(settings: PluginSettings) -> Iterable[RequestFilter]:
    """Which filters must every request pass before admission (quotas, presets, title detection)?

    They run in the order of their names, off the event loop's hot path but on its thread: do no I/O.
    """
    return ()


@hookspec
def tensorfold_observers(settings: PluginSettings) -> Iterable[Observer]:
    """Who wants to be told of each request's start and outcome (exporters, debug logs)?"""
    return ()


@hookspec
def tensorfold_collectors(settings: PluginSettings) -> Iterable[Collector]:
    """Which Prometheus collectors shall `/metrics` read?

    Registered on the application's own registry, and read at each scrape. One that is an `Observer` as well is told of
    each request; answer `tensorfold_observers` with it too, and it would be told twice.
    """
    return ()


# ---- the program ------------------------------------------------------------------------------------------


@hookspec
def tensorfold_commands() -> Iterable[Command]:
    """Which commands do you add to the `tensorfold` program?"""
    return ()


@hookspec
def tensorfold_settings() -> Iterable[SettingsTable]:
    """Which settings do you read?

    Asked before every other hook; the values, from `tensorfold.toml`, environment and flags, come back to you as
    the `settings` argument of the hooks that have one.
    """
    return ()


@hookspec
def tensorfold_examples() -> Iterable[Example]:
    """What shall `tensorfold check` try you with?

    Small bodies for each dialect, a key for each auth source, a tiny checkpoint for each model family. Asked by that
    command alone. Keep them in a module of their own, and import it here.

    Example::

        @hookimpl
        def tensorfold_examples():
            yield DialectExample(dialect="acme", bodies={"/acme/complete": b'{"prompt": "hi"}'})
    """
    return ()
