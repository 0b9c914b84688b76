"""What plugins offer together: conflicts stop the program and name both sides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensorfold.contracts.settings import PluginSettings
from tensorfold.errors import PluginConflict, PluginNotFound
from tensorfold.plugins import Catalog, Found, Plugins, Wanted

Install = Callable[..., None]
Foreign = Callable[[], list[Found]]

DIALECT = """
from tensorfold import hookimpl
from tensorfold.contracts.dialect import Dialect, Endpoint

@hookimpl
def tensorfold_dialects():
    yield Dialect(name="{name}", errors=None, endpoints=(Endpoint("{path}", None),))
"""
INQUIRIES = DIALECT.replace("Endpoint", "InquiryEndpoint").replace("endpoints=", "inquiries=")
FAMILY = """
from types import SimpleNamespace
from tensorfold import hookimpl

@hookimpl
def tensorfold_model_families():
    yield SimpleNamespace(name="{name}", gguf=(SimpleNamespace(architecture="{architecture}"),))
"""


def catalog(wanted: Wanted, installed: list[Found]) -> Catalog:
    """What these plugins offer with no settings."""
    return Catalog.of(Plugins(wanted, installed), PluginSettings({}))


def test_offers_come_in_the_order_of_their_names(install: Install, foreign: Foreign) -> None:
    install(
        "acme",
        "1",
        {"tensorfold.dialects": {"a": "acme_a", "b": "acme_b"}},
        {"acme_a": DIALECT.format(name="z", path="/z"), "acme_b": DIALECT.format(name="y", path="/y")},
    )
    offered = catalog(Wanted(), foreign())
    assert [each.name for each in offered.dialects] == ["y", "z"]
    assert offered.owners == {"dialect y": "acme 1", "dialect z": "acme 1"}


@pytest.mark.parametrize(
    ("one", "other", "claim"),
    [
        (DIALECT.format(name="chat", path="/a"), DIALECT.format(name="chat", path="/b"), "dialect chat"),
        (DIALECT.format(name="a", path="/v1/x"), DIALECT.format(name="b", path="/v1/x"), "path /v1/x"),
        (DIALECT.format(name="a", path="/v1/x"), INQUIRIES.format(name="b", path="/v1/x"), "path /v1/x"),
        (FAMILY.format(name="m", architecture="a"), FAMILY.format(name="m", architecture="b"), "model family m"),
        (FAMILY.format(name="m", architecture="a"), FAMILY.format(name="n", architecture="a"), "GGUF architecture a"),
    ],
)
def test_two_claims_to_one_name_path_or_architecture_stop_with_both_named(
    install: Install, foreign: Foreign, one: str, other: str, claim: str
) -> None:
    install("acme", "1.0", {"tensorfold.extras": {"one": "acme_one"}}, {"acme_one": one})
    install("zeta", "2.0", {"tensorfold.extras": {"other": "zeta_other"}}, {"zeta_other": other})
    with pytest.raises(PluginConflict) as caught:
        catalog(Wanted(), foreign())
    assert str(caught.value).startswith(
        f"extras/one (acme 1.0) and extras/other (zeta 2.0) both claim the {claim}: start with --plugin no:"
    )


def test_a_dialect_that_was_asked_for_may_come_from_a_module_that_was_asked_for(
    install: Install, foreign: Foreign
) -> None:
    install("acme", "1", {}, {"acme_loose": DIALECT.format(name="toy", path="/toy")})
    wanted = Wanted(dialects=("toy",), plugins=("acme_loose",))
    assert [each.name for each in catalog(wanted, foreign()).dialects] == ["toy"]
    with pytest.raises(PluginNotFound, match="no plugin dialects/tyo; the loaded plugins offer toy"):
        catalog(Wanted(dialects=("tyo",), plugins=("acme_loose",)), foreign())
    with pytest.raises(PluginNotFound, match="no plugin backends/tyo; the loaded plugins offer none"):
        catalog(Wanted(backend="tyo", plugins=("acme_loose",)), foreign())


EVERYTHING = """
from types import SimpleNamespace
from tensorfold import hookimpl

@hookimpl
def tensorfold_auth_sources(settings):
    yield SimpleNamespace(name=settings.table("acme")["label"])

@hookimpl
def tensorfold_scheduler_policies(settings):
    yield SimpleNamespace(name=settings.table("acme")["label"])

@hookimpl
def tensorfold_request_filters(settings):
    yield SimpleNamespace(name=settings.table("acme")["label"])
    yield SimpleNamespace(name="a")

@hookimpl
def tensorfold_observers(settings):
    yield settings.table("acme")["label"]

@hookimpl
def tensorfold_collectors(settings):
    yield settings.table("acme")["label"]

@hookimpl
def tensorfold_backends():
    yield SimpleNamespace(name="acme")
"""


def test_every_hook_is_asked_once_with_the_settings_and_its_offers_are_in_the_catalog(
    install: Install, foreign: Foreign
) -> None:
    install("acme", "1", {"tensorfold.extras": {"acme": "acme_extra"}}, {"acme_extra": EVERYTHING})
    offered = Catalog.of(Plugins(Wanted(), foreign()), PluginSettings({"acme": {"label": "mine"}}))
    assert [each.name for each in offered.auth_sources] == ["mine"]
    assert [each.name for each in offered.policies] == ["mine"]
    assert [each.name for each in offered.filters] == ["a", "mine"]
    assert [each.name for each in offered.backends] == ["acme"]
    assert [str(each) for each in (*offered.observers, *offered.collectors)] == ["mine", "mine"]
