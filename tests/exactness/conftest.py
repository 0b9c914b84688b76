"""The models that the engine's exactness is tested on."""

from __future__ import annotations

import pytest

from .engine_models import MODELS, MakeRunner


@pytest.fixture(params=MODELS)
def runner(request: pytest.FixtureRequest) -> MakeRunner:
    """Makes runners of one of the models."""
    make: MakeRunner = request.param
    return make
