"""The dashboard in the documentation asks for metrics that are there, and shows what they are about."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tensorfold.contracts.engine import EngineStatus
from tensorfold.contracts.observe import Outcome
from tensorfold.ir import JSON, Request, TextPrompt, Timings, Usage
from tensorfold.observe import Metrics

FILE = Path(__file__).resolve().parent.parent.parent / "docs" / "grafana-dashboard.json"


def status() -> EngineStatus:
    pools: JSON = {"main": {"positions": 4, "used": 1}}
    details: dict[str, JSON] = {"drafted_total": 2, "accepted_total": 1, "lanes_yielded_total": 0, "pools": pools}
    kept: dict[str, JSON] = {
        "prompt_tokens_begun_total": 4,
        "prompt_tokens_reused_total": 2,
        "prefix_evictions_total": 0,
    }
    return EngineStatus(healthy=True, details=details | kept)


@pytest.fixture
def samples() -> dict[str, set[str]]:
    """Each sample's name with its labels, as a server with all of its counters tells them."""
    metrics = Metrics(status)
    metrics.answered("alice", "/v1/models", 200)
    metrics.ended(Request(id="r", prompt=TextPrompt("x")), "/x", Outcome(200, "end", Usage(1, 1), Timings(), 1.0, 0.5))
    families = text_string_to_metric_families(metrics.text().decode())
    return {sample.name: set(sample.labels) for family in families for sample in family.samples}


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        if isinstance(variable["query"], dict):
            yield variable["query"]["query"]


def test_every_metric_and_label_of_the_dashboard_exists(samples: dict[str, set[str]]) -> None:
    asked = list(expressions(json.loads(FILE.read_text())))
    assert len(asked) > 10
    for expression in asked:
        names = re.findall(r"tensorfold:\w+", expression)
        assert names, expression
        assert set(names) <= set(samples), expression
        grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
        assert grouped <= set().union(*(samples[name] for name in names)), expression


def test_panels_are_told_apart_and_do_not_overlap() -> None:
    panels = json.loads(FILE.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    letters = [[target["refId"] for target in panel["targets"]] for panel in panels]
    assert all(len(set(each)) == len(each) for each in letters)


def test_every_family_has_its_line_in_the_documentation(samples: dict[str, set[str]]) -> None:
    page = (FILE.parent / "metrics.md").read_text(encoding="utf-8")
    for name in samples:
        family = re.sub(r"_(bucket|sum|count|created)$", "", name.removeprefix("tensorfold:"))
        assert f"`{family}`" in page, family
