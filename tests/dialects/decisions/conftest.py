"""An application that serves decisions, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorfold.http import Application, create_app
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scoring import ScoringEngine
from tensorfold_dialect_decisions import decisions_dialect

from .model import PROMPTS, TOKENIZER, odds


@pytest.fixture
def engine() -> ScoringEngine:
    """Remembers what it was asked."""
    return ScoringEngine(MODEL, PROMPTS, odds)


@pytest.fixture
def app(engine: ScoringEngine) -> Iterator[Application]:
    """Over that engine."""
    app = create_app(engine=engine, model=MODEL, dialects=[decisions_dialect()], tokenizer=TOKENIZER)
    yield app
    app.close()
