"""Figures from samples, as tables for people and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from tensorfold.cli.bench.load import Load
from tensorfold.cli.bench.measure import Sample

__all__ = ["Figures", "Spread", "as_json", "percentile", "table"]


@dataclass(frozen=True, slots=True)
class Spread:
    """How a figure is spread over requests, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: Iterable[float | None]) -> Spread | None:
        """From seconds; None when there are none."""
        values = sorted(each * 1000 for each in seconds if each is not None)
        if not values:
            return None
        return cls(sum(values) / len(values), *(percentile(values, share) for share in (0.5, 0.9, 0.99)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a server did."""

    server: str
    model: str
    requests: int
    failed: int
    problems: tuple[str, ...]
    """The different reasons of failures."""
    seconds: float
    prompt_tokens: int
    reply_tokens: int
    tokens_per_second: float
    """Reply tokens over the whole time, all streams together."""
    requests_per_second: float
    first_token_ms: Spread | None
    between_tokens_ms: Spread | None
    end_to_end_ms: Spread | None

    @classmethod
    def of(cls, server: str, model: str, loads: Sequence[Load]) -> Figures:
        """Over several stretches of load."""
        samples: list[Sample] = [sample for load in loads for sample in load.samples]
        good = [sample for sample in samples if sample.problem is None]
        seconds = sum(load.seconds for load in loads)
        tokens = sum(sample.reply_tokens for sample in good)
        return cls(
            server=server,
            model=model,
            requests=len(samples),
            failed=len(samples) - len(good),
            problems=tuple(dict.fromkeys(sample.problem for sample in samples if sample.problem)),
            seconds=seconds,
            prompt_tokens=sum(sample.prompt_tokens for sample in good),
            reply_tokens=tokens,
            tokens_per_second=tokens / seconds if seconds else 0.0,
            requests_per_second=len(good) / seconds if seconds else 0.0,
            first_token_ms=Spread.of(sample.first for sample in good),
            between_tokens_ms=Spread.of(sample.between for sample in good),
            end_to_end_ms=Spread.of(sample.whole for sample in good),
        )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the sorted values lies, between neighbours by straight line."""
    place = share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (values[above] - values[below]) * (place - below)


def as_json(servers: Sequence[Figures]) -> dict[str, object]:
    """Everything; with two servers also the first's figures over the second's."""
    answer: dict[str, object] = {"servers": [asdict(each) for each in servers]}
    if len(servers) == 2:
        answer["ratios"] = {name: _ratio(*pair) for name, pair in _paired(servers).items()}
    return answer


def table(servers: Sequence[Figures]) -> str:
    """A column for each server, and the ratio of the first to the second."""
    heads = ["", *(each.server for each in servers), *(["ratio"] if len(servers) == 2 else [])]
    rows = [heads]
    for name, values in _paired(servers).items():
        ratio = [_shown(_ratio(*values))] if len(servers) == 2 else []
        rows.append([name, *(_shown(value) for value in values), *ratio])
    counts = [f"{each.requests - each.failed} of {each.requests}" for each in servers]
    rows.insert(1, ["requests answered", *counts, *([""] if len(servers) == 2 else [])])
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _paired(servers: Sequence[Figures]) -> dict[str, list[float | None]]:
    """Each figure by its name, of every server."""
    rows: dict[str, list[float | None]] = {
        "reply tokens/s": [each.tokens_per_second for each in servers],
        "requests/s": [each.requests_per_second for each in servers],
        "prompt tokens a request": [each.prompt_tokens / max(1, each.requests - each.failed) for each in servers],
        "reply tokens a request": [each.reply_tokens / max(1, each.requests - each.failed) for each in servers],
    }
    spreads = {
        "first token": [each.first_token_ms for each in servers],
        "between tokens": [each.between_tokens_ms for each in servers],
        "end to end": [each.end_to_end_ms for each in servers],
    }
    for name, several in spreads.items():
        for part in ("mean", "p50", "p90", "p99"):
            rows[f"{name} {part}, ms"] = [None if each is None else getattr(each, part) for each in several]
    return rows


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else ours / theirs


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}" if abs(value) < 10 else f"{value:.1f}"
