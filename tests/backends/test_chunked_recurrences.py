"""Recurrences over a whole chunk leave what a walk over its rows leaves, however long and strong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.contracts.backend import Backend, BackendSettings, Session
from tensorfold.contracts.states import Recurrent, StateSpec
from tensorfold.contracts.step import Kind, Segment, Step
from tensorfold.errors import BackendError
from tensorfold.testing.reference import ReferenceBackend

Arrays = tuple[NDArray[np.float32], ...]
Run = Callable[[Any, Any, tuple[Any, ...]], Any]

KEY_HEADS, HEADS, KEY, VALUE = 2, 4, 16, 24
WIDTH, GROUPS, STATES = 12, 2, 20
SIZES = (1, 2, 7, 63, 64, 65, 150)
"""Rows of chunks: less than a block, exactly one, and several with a rest."""


@pytest.fixture(
    scope="module",
    params=[pytest.param("mlx", marks=pytest.mark.mlx), pytest.param("torch", marks=pytest.mark.torch)],
)
def session(request: pytest.FixtureRequest) -> Iterator[Session[Any]]:
    """A backend that computes chunks in blocks, on the CPU, in float32."""
    made: type[Backend] = getattr(
        import_module(f"tensorfold_backend_{request.param}"), f"{request.param.capitalize()}Backend"
    )
    session = made().open(BackendSettings(device="cpu", dtype="float32"))
    yield session
    session.close()


@pytest.fixture(scope="module")
def oracle() -> Session[Any]:
    """Row by row in float64."""
    return ReferenceBackend("float64").open(BackendSettings())


def delta_inputs(rows: int, decay: float, *, by_channel: bool, alike: bool) -> Arrays:
    """`alike`: all keys point nearly the same way and every row replaces what is there."""
    rng = np.random.default_rng(rows)

    def drawn(*shape: int) -> NDArray[np.float32]:
        return rng.normal(0, 1, (rows, *shape)).astype(np.float32)

    keys = drawn(KEY_HEADS, KEY)
    if alike:
        keys = keys * 0.05 + 1.0
    fading = np.float32(-decay) * np.abs(drawn(HEADS, KEY) if by_channel else drawn(HEADS))
    strength = np.ones((rows, HEADS), np.float32) if alike else 1 / (1 + np.exp(-drawn(HEADS)))
    return (drawn(KEY_HEADS, KEY), keys.astype(np.float32), drawn(HEADS, VALUE), fading, strength.astype(np.float32))


def delta(ops: Any, step: Any, inputs: tuple[Any, ...]) -> Any:
    return ops.gated_delta(step, "state", *inputs, scale=KEY**-0.5)


def computed(
    session: Session[Any], spec: StateSpec, run: Run, inputs: Arrays, sizes: tuple[int, ...], kind: Kind
) -> Any:
    """All rows in steps of these sizes, and ten more by rows, which show the state."""
    states = {"state": spec}
    store = session.store(states, {}, 2)
    outputs: list[NDArray[np.float32]] = []
    first = 0
    steps: list[tuple[int, Kind]] = [*((size, kind) for size in sizes), (10, "rows")]
    for size, each in steps:
        ids = np.zeros(size, np.int32)
        step: Step[Any] = Step(
            kind=each,
            segments=(Segment(1, (0,) * size, first, kind=each),),
            bounds=((0, size),),
            ids=session.array(ids),
            positions=session.array(ids),
            host_ids=ids,
            host_positions=ids,
            history=lambda n: np.zeros((0, n), np.int64),
            pages={},
            wanted=None,
        )
        parts = tuple(session.array(values[first : first + size]) for values in inputs)
        outputs.append(session.numpy(run(session.ops(each, store, states), step, parts)))
        store.commit(1, "main", first, size, first + size)
        session.finish()
        first += size
    return np.concatenate(outputs)


def near(got: Any, right: Any, tolerance: float) -> None:
    assert np.isfinite(got).all()
    assert np.abs(got - right).max() <= tolerance * max(1.0, float(np.abs(right).max()))


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.01, 1.0, 40.0])
@pytest.mark.parametrize("rows", SIZES)
def test_a_chunk_of_the_delta_rule_is_its_rows(
    session: Session[Any], oracle: Session[Any], rows: int, decay: float, by_channel: bool
) -> None:
    """Outputs and states, without decay, with a little, and with so much that nothing is left."""
    inputs = delta_inputs(rows + 10, decay, by_channel=by_channel, alike=False)
    spec = Recurrent((HEADS, KEY, VALUE))
    right = computed(oracle, spec, delta, inputs, (rows,), "rows")
    near(computed(session, spec, delta, inputs, (rows,), "chunk"), right, 2e-5)


@pytest.mark.parametrize("by_channel", [False, True])
def test_keys_that_are_nearly_alike_do_not_blow_up(
    session: Session[Any], oracle: Session[Any], by_channel: bool
) -> None:
    """Every row takes back what the last one wrote: the worst case for solving many rows at once."""
    inputs = delta_inputs(138, 0.0, by_channel=by_channel, alike=True)
    spec = Recurrent((HEADS, KEY, VALUE))
    right = computed(oracle, spec, delta, inputs, (128,), "rows")
    near(computed(session, spec, delta, inputs, (128,), "chunk"), right, 1e-4)


@pytest.mark.parametrize("decay", [0.01, 1.0, 40.0])
@pytest.mark.parametrize("rows", SIZES)
def test_a_chunk_of_a_state_space_is_its_rows(
    session: Session[Any], oracle: Session[Any], rows: int, decay: float
) -> None:
    """The same for Mamba-2."""
    rng = np.random.default_rng(rows)
    shapes = ((HEADS, WIDTH), (HEADS,), (GROUPS, STATES), (GROUPS, STATES))
    x, dt, b, c = (rng.normal(0, 1, (rows + 10, *shape)).astype(np.float32) for shape in shapes)
    rates, passed = np.full(HEADS, -decay, np.float32), np.ones(HEADS, np.float32)

    def run(session: Session[Any]) -> Run:
        constants = session.packer.vector(rates), session.packer.vector(passed)
        return lambda ops, step, xs: ops.ssd(step, "state", xs[0], xs[1], constants[0], xs[2], xs[3], constants[1])

    spec, inputs = Recurrent((HEADS, WIDTH, STATES)), (x, np.abs(dt), b, c)
    right = computed(oracle, spec, run(oracle), inputs, (rows,), "rows")
    near(computed(session, spec, run(session), inputs, (rows,), "chunk"), right, 2e-5)


def test_chunks_follow_each_other(session: Session[Any], oracle: Session[Any]) -> None:
    """A chunk begins where the last one ended."""
    inputs = delta_inputs(210, 0.1, by_channel=False, alike=False)
    spec = Recurrent((HEADS, KEY, VALUE))
    right = computed(oracle, spec, delta, inputs, (200,), "rows")
    near(computed(session, spec, delta, inputs, (70, 1, 129), "chunk"), right, 2e-5)


def test_a_chunk_is_kept_whole_or_not_at_all(session: Session[Any]) -> None:
    """Its states are not known row by row, and that is said."""
    states = {"state": Recurrent((HEADS, KEY, VALUE))}
    store = session.store(states, {}, 1)
    ids = np.zeros(5, np.int32)
    step: Step[Any] = Step(
        kind="chunk",
        segments=(Segment(0, (0,) * 5, 0, kind="chunk"),),
        bounds=((0, 5),),
        ids=session.array(ids),
        positions=session.array(ids),
        host_ids=ids,
        host_positions=ids,
        history=lambda n: np.zeros((5, n), np.int64),
        pages={},
        wanted=None,
    )
    inputs = delta_inputs(5, 0.1, by_channel=False, alike=False)
    delta(session.ops("chunk", store, states), step, tuple(session.array(each) for each in inputs))
    with pytest.raises(BackendError, match="of a chunk of 5 rows, 3 cannot be kept"):
        store.commit(0, "main", 0, 5, 3)
