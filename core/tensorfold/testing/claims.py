"""A pytest plugin (`-p tensorfold.testing.claims`) that reports each claim of a contract in one line.

A claim is a test function: its name is the sentence, its docstring says what is meant and, behind `Fix:`, what to do.
"""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass, field
from typing import cast

import pytest
from _pytest._io import TerminalWriter

__all__ = ["Claim", "ClaimsReporter"]

_SHOWN = 4
"""Lines of an error, and names of cases, that are shown."""
_WIDTH = 200
"""Characters of a line of an error."""


@dataclass(slots=True)
class Claim:
    """One function of a contract, over all its cases."""

    about: str
    """What the contract is held against."""
    sentence: str
    meaning: str
    fix: str
    expected: int
    """Cases."""
    outcomes: Counter[str] = field(default_factory=Counter[str])
    failed: list[str] = field(default_factory=list[str])
    """Cases that failed."""
    error: str = ""
    """What the first of them said."""
    why_not: str = ""
    """Why it was skipped."""

    @classmethod
    def of(cls, item: pytest.Function) -> Claim:
        """The claim of a test."""
        meaning, _, fix = (inspect.getdoc(cast("object", item.obj)) or "").partition("Fix:")
        owner = None if item.cls is None else item.cls.__doc__
        sentence = item.originalname.removeprefix("test_").replace("_", " ")
        return cls(" ".join((owner or "").split()), sentence, " ".join(meaning.split()), " ".join(fix.split()), 0)

    @property
    def done(self) -> bool:
        """Whether every case has ended."""
        return self.outcomes.total() >= self.expected

    def lines(self) -> list[str]:
        """What is printed."""
        if self.outcomes["failed"]:
            cases = ""
            if self.expected > 1:
                more = " ..." if len(self.failed) > _SHOWN else ""
                named = ", ".join(self.failed[:_SHOWN])
                cases = f" ({self.outcomes['failed']} of {self.expected} cases: {named}{more})"
            told = [line[:_WIDTH] for line in self.error.splitlines() if line.strip()][:_SHOWN]
            return [
                f"  FAILS  {self.sentence}{cases}",
                *(f"         {line}" for line in told),
                *([f"         meant: {self.meaning}"] if self.meaning else []),
                *([f"         to do: {self.fix}"] if self.fix else []),
            ]
        if self.outcomes["passed"]:
            return [f"  ok     {self.sentence}"]
        return [f"  -      {self.sentence}: {self.why_not}"]


class ClaimsReporter:
    """Prints claims, and how many hold; of pytest's own reporter nothing is left to be seen (`-qq --tb=no`)."""

    def __init__(self, writer: TerminalWriter) -> None:
        self._writer = writer
        self._claims: dict[tuple[str, str], Claim] = {}
        self._about = ""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What keeps the contracts from being put together."""
        if report.failed:
            self._writer.line(str(report.longrepr))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Know how many cases each claim has."""
        for item in session.items:
            if isinstance(item, pytest.Function):
                claim = self._claims.setdefault(_key(item.nodeid), Claim.of(item))
                claim.expected += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """No letter for a case."""
        return report.outcome, "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case: its call, or what ended it before or after."""
        claim = self._claims[_key(report.nodeid)]
        if report.skipped:
            claim.outcomes["skipped"] += 1
            claim.why_not = _reason(report)
        elif report.failed and not (report.when == "teardown" and claim.done):
            claim.outcomes["failed"] += 1
            claim.failed.append(report.nodeid.partition("[")[2].rstrip("]"))
            claim.error = claim.error or _said(report)
        elif report.when == "call":
            claim.outcomes["passed"] += 1

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A case has ended; the last one of a claim prints it."""
        claim = self._claims[_key(nodeid)]
        if not claim.done:
            return
        if claim.about != self._about:
            self._about = claim.about
            self._writer.line(claim.about, bold=True)
        for line in claim.lines():
            self._writer.line(line, red=line.startswith("  FAILS"))

    def pytest_sessionfinish(self) -> None:
        """How many claims hold."""
        wrong = sum(bool(each.outcomes["failed"]) for each in self._claims.values())
        holds = sum(bool(each.outcomes["passed"]) and not each.outcomes["failed"] for each in self._claims.values())
        self._writer.line(f"{holds} of {holds + wrong} claims hold")


def _key(nodeid: str) -> tuple[str, str]:
    owner, _, name = nodeid.partition("[")[0].rpartition("::")
    return owner, name


def _said(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash is not None else report.longrepr)


def _reason(report: pytest.TestReport) -> str:
    match report.longrepr:
        case (_, _, str() as reason):
            return reason.removeprefix("Skipped: ")
        case _:
            return ""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Report claims."""
    config.pluginmanager.register(ClaimsReporter(config.get_terminal_writer()), "tensorfold-claims")
