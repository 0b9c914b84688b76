"""The contracts that fit a plugin, as test classes: what `tensorfold check` runs.

The same in two lines of a test module of your own:

    from tensorfold.testing.checking import contracts_of

    globals().update(contracts_of("tensorfold_dialect_acme"))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import pytest

from tensorfold.contracts.auth import AuthSource
from tensorfold.contracts.backend import Backend
from tensorfold.contracts.dialect import Dialect
from tensorfold.contracts.examples import AuthExample, BackendExample, DialectExample, Example, FamilyExample
from tensorfold.contracts.family import ModelFamily
from tensorfold.contracts.observe import Observer
from tensorfold.contracts.policy import RequestFilter, SchedulerPolicy
from tensorfold.contracts.settings import PluginSettings
from tensorfold.plugins import Plugins
from tensorfold.testing.plugins import PluginContract, Target, default_settings

__all__ = ["contracts_of"]

E = TypeVar("E", DialectExample, AuthExample, FamilyExample, BackendExample)


def contracts_of(plugin: str) -> dict[str, type]:
    """A test class for the plugin, and one for each thing that it offers, by the name that pytest looks for.

    Args:
        plugin: a module, a `.py` file, a folder, `KIND/NAME`, or a distribution.

    Raises:
        PluginError: there is no such plugin, or it cannot be loaded.
    """
    target = Target(plugin)
    plugins = target.plugins()
    settings = default_settings(plugins)
    examples = target.offers(plugins.examples())
    suites = [_suite(PluginContract, "the plugin", plugin=plugin)]
    for family in target.offers(plugins.families()):
        suites.append(_family(family, _for(examples, FamilyExample, "family", family.name)))
    for backend in target.offers(plugins.backends()):
        suites.append(_backend(backend, _for(examples, BackendExample, "backend", backend.name)))
    for dialect in target.offers(plugins.dialects(settings)):
        suites.append(_dialect(dialect, _for(examples, DialectExample, "dialect", dialect.name)))
    for source in target.offers(plugins.auth_sources(settings)):
        known = _for(examples, AuthExample, "source", source.name)
        suites.append(_auth(source.name, plugins, settings, known))
    for policy in target.offers(plugins.policies(settings)):
        suites.append(_policy(policy.name, lambda: target.offers(plugins.policies(settings))))
    for each in target.offers(plugins.filters(settings)):
        suites.append(_filter(each.name, lambda: target.offers(plugins.filters(settings))))
    for number, _ in enumerate(target.offers(plugins.observers(settings))):
        suites.append(_observer(number, lambda: target.offers(plugins.observers(settings))))
    return {_test_name(suite): suite for suite in suites}


def _test_name(suite: type) -> str:
    """`TestDialectAcme`, from what it is about."""
    return "Test" + re.sub(r"\W", "", str(suite.__doc__).title())


def _for(examples: Sequence[Example], kind: type[E], field: str, name: str) -> list[E]:
    return [each for each in examples if isinstance(each, kind) and getattr(each, field) == name]


def _suite(contract: type, about: str, **attributes: object) -> type:
    """A subclass that says in its docstring what it is about."""
    return type(contract.__name__, (contract,), {"__doc__": about, "__test__": True, **attributes})


class _WithoutExample:
    """Stands in for a contract that has nothing to try the plugin with."""

    missing: str

    def test_it_says_what_to_try_it_with(self) -> None:
        """There is an example for it among the answers to `tensorfold_examples`.

        Fix: answer `tensorfold_examples` with an object of `tensorfold.contracts.examples` that has its name.
        """
        pytest.fail(f"no {self.missing} names it", pytrace=False)


def _missing(about: str, kind: type) -> type:
    return _suite(_WithoutExample, about, missing=kind.__name__)


def _dialect(dialect: Dialect, examples: Sequence[DialectExample]) -> type:
    from tensorfold.testing.dialects import DialectContract

    about = f"dialect {dialect.name}"
    if not examples and (dialect.endpoints or dialect.inquiries):
        return _missing(about, DialectExample)
    example = examples[0] if examples else DialectExample(dialect=dialect.name)
    return _suite(
        DialectContract,
        about,
        dialect=dialect,
        bodies=example.bodies,
        stream_bodies=example.stream_bodies,
        inquiry_bodies=example.inquiry_bodies,
    )


def _auth(name: str, plugins: Plugins, settings: PluginSettings, examples: Sequence[AuthExample]) -> type:
    from tensorfold.testing.auth import AuthSourceContract

    about = f"auth source {name}"
    if not examples:
        return _missing(about, AuthExample)
    example = examples[0]
    tables: dict[str, Mapping[str, Any]] = dict(settings.tables)
    for table, values in example.settings.items():
        tables[table] = MappingProxyType({**tables.get(table, {}), **values})
    changed = PluginSettings(MappingProxyType(tables))

    class Contract(AuthSourceContract):
        @pytest.fixture
        def source(self) -> AuthSource:
            return next(each.value for each in plugins.auth_sources(changed) if each.value.name == name)

    return _suite(Contract, about, accepted=example.accepted)


def _family(family: ModelFamily, examples: Sequence[FamilyExample]) -> type:
    from tensorfold.testing.families import ModelFamilyContract, TinyCheckpoint

    about = f"model family {family.name}"
    if not examples:
        return _missing(about, FamilyExample)
    subject = family

    class Contract(ModelFamilyContract):
        @pytest.fixture
        def family(self) -> ModelFamily:
            return subject

        @pytest.fixture(params=examples, ids=lambda example: example.name)
        def checkpoint(self, request: pytest.FixtureRequest) -> TinyCheckpoint:
            return TinyCheckpoint.of(request.param, subject)

    return _suite(Contract, about, refused=examples[0].refused, steering=examples[0].steering)


def _backend(backend: Backend, examples: Sequence[BackendExample]) -> type:
    from tensorfold.testing.backends import BackendContract

    promised = {"tolerance": examples[0].tolerance, "settings": examples[0].settings} if examples else {}
    return _suite(BackendContract, f"backend {backend.name}", backend=backend, **promised)


def _policy(name: str, fresh: Callable[[], list[SchedulerPolicy]]) -> type:
    from tensorfold.testing.policies import SchedulerPolicyContract

    class Contract(SchedulerPolicyContract):
        @pytest.fixture
        def policy(self) -> SchedulerPolicy:
            return next(each for each in fresh() if each.name == name)

    return _suite(Contract, f"scheduling policy {name}")


def _filter(name: str, fresh: Callable[[], list[RequestFilter]]) -> type:
    from tensorfold.testing.filters import RequestFilterContract

    class Contract(RequestFilterContract):
        @pytest.fixture
        def filter(self) -> RequestFilter:
            return next(each for each in fresh() if each.name == name)

    return _suite(Contract, f"request filter {name}")


def _observer(number: int, fresh: Callable[[], list[Observer]]) -> type:
    from tensorfold.testing.observers import ObserverContract

    class Contract(ObserverContract):
        @pytest.fixture
        def observer(self) -> Observer:
            return fresh()[number]

    return _suite(Contract, f"observer {number + 1}")
