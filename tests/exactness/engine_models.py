"""Models for the engine: scripted ones, whose every token depends on all before it, and one with every kind of state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from tensorfold.compute.runner import Runner
from tensorfold.contracts.backend import BackendSettings, Session
from tensorfold.contracts.states import PagedSpec, TableKey
from tensorfold.testing.fake_family import FakeFamily, fake_config, fake_decoder
from tensorfold.testing.reference import ReferenceBackend
from tensorfold.testing.scripted import scripted_geometry, scripted_runner

VOCABULARY = 96
WINDOW = 256

MakeRunner: TypeAlias = Callable[[int, int], Runner[Any]]
"""A runner of so many lanes whose sequences share so many positions."""


def scripted(lanes: int, positions: int) -> Runner[Any]:
    """Without a draft head; chunks and rows give the same bits."""
    geometry = scripted_geometry(vocabulary=VOCABULARY, window=WINDOW, stop_ids=frozenset({1}))
    return scripted_runner([], geometry, lanes=lanes, chunk=8, positions=positions)


def scripted_head(lanes: int, positions: int) -> Runner[Any]:
    """With a draft head whose every third guess is wrong; chunks and rows differ."""
    geometry = scripted_geometry(vocabulary=VOCABULARY, window=WINDOW, stop_ids=frozenset({1}))
    return scripted_runner([], geometry, lanes=lanes, chunk=8, positions=positions, equal=False, wrong=3)


def every_state(lanes: int, positions: int) -> Runner[Any]:
    """The fake family; its draft head has a fixed-size state beside its pages."""
    return fake(lanes, positions, recurrent_draft=True)


def every_state_deep(lanes: int, positions: int) -> Runner[Any]:
    """Its draft head can guess several tokens ahead."""
    return fake(lanes, positions, recurrent_draft=False)


def every_state_on_mlx(lanes: int, positions: int) -> Runner[Any]:
    """Where chunks and rows have kernels of their own."""
    pytest.importorskip("mlx.core")
    from tensorfold_backend_mlx import MlxBackend

    return fake(lanes, positions, recurrent_draft=True, session=MlxBackend().open(BackendSettings(device="cpu")))


def fake(lanes: int, positions: int, *, recurrent_draft: bool, session: Session[Any] | None = None) -> Runner[Any]:
    """The fake family, on the reference backend if on no other."""
    config = fake_config(vocabulary=VOCABULARY, window=WINDOW, recurrent_draft=recurrent_draft)
    geometry = FakeFamily().geometry(config)
    if session is None:
        session = ReferenceBackend().open(BackendSettings())
    keys = {TableKey.of(spec) for spec in geometry.states.values() if isinstance(spec, PagedSpec)}
    whole = lanes * (WINDOW // 64 + 2)
    pages = {key: positions // 64 if key == TableKey("main", None) else whole for key in keys}
    decoder = fake_decoder(session.packer, config)
    return Runner(decoder, session, geometry, lanes=lanes, pages=pages, identity="fake", chunk=8)


MODELS = [
    pytest.param(scripted, id="scripted"),
    pytest.param(scripted_head, id="scripted head"),
    pytest.param(every_state, id="every state"),
    pytest.param(every_state_deep, id="every state, deep head", marks=pytest.mark.slow),
    pytest.param(every_state_on_mlx, id="every state on mlx", marks=[pytest.mark.slow, pytest.mark.mlx]),
]
