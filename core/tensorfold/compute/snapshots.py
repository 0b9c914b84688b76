"""Kept states: pages by reference, fixed-size states by copy, and their way to the host and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.compute.pages import GONE, PageTables, pages_of
from tensorfold.contracts.backend import Saved, Session, StateStore
from tensorfold.contracts.family import Geometry
from tensorfold.contracts.states import Group, TableKey, is_paged

__all__ = ["Snapshot", "export_snapshot", "import_snapshot", "snapshot_bytes"]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One sequence's states at a committed length. Made and dropped by the Runner."""

    identity: str
    """Backend, numerics, plan and weights: only a runner of the same identity restores it."""
    tokens: Mapping[Group, tuple[int, ...]]
    tables: Mapping[TableKey, tuple[int, ...]]
    saved: Mapping[Group, Saved]
    bytes: int
    """Device memory that it keeps alive, shared pages counted in full."""

    @property
    def length(self) -> int:
        """Positions kept."""
        return len(self.tokens["main"])


def snapshot_bytes(
    tables: Mapping[TableKey, tuple[int, ...]], saved: Mapping[Group, Saved], session: Session[Any], geometry: Geometry
) -> int:
    """Device memory behind these tables and copies."""
    paged = sum(
        session.page_bytes(spec) * sum(page != GONE for page in tables[TableKey.of(spec)])
        for spec in geometry.states.values()
        if is_paged(spec)
    )
    return paged + sum(each.bytes for each in saved.values())


def _prefix(key: TableKey) -> str:
    return f"pages/{key.group}/{'all' if key.window is None else key.window}"


def export_snapshot(snapshot: Snapshot, store: StateStore) -> dict[str, NDArray[np.generic]]:
    """The contents by name: tokens, pages number by number, fixed-size states."""
    arrays: dict[str, NDArray[np.generic]] = {}
    for group, tokens in snapshot.tokens.items():
        arrays[f"tokens/{group}"] = np.asarray(tokens, dtype=np.int64)
    for key, pages in snapshot.tables.items():
        for number, page in enumerate(pages):
            if page != GONE:
                for name, values in store.export_page(key, page).items():
                    arrays[f"{_prefix(key)}/{number}/{name}"] = values
    for group, saved in snapshot.saved.items():
        for name, values in saved.export().items():
            arrays[f"saved/{group}/{name}"] = values
    return arrays


def _below(arrays: Mapping[str, NDArray[np.generic]], prefix: str) -> dict[str, NDArray[np.generic]]:
    return {name[len(prefix) :]: values for name, values in arrays.items() if name.startswith(prefix)}


def import_snapshot(
    arrays: Mapping[str, NDArray[np.generic]],
    identity: str,
    store: StateStore,
    tables: PageTables,
    session: Session[Any],
    geometry: Geometry,
) -> Snapshot:
    """The reverse of `export_snapshot`.

    Raises:
        OutOfPages: there is no room; nothing is held.
    """
    tokens: dict[Group, tuple[int, ...]] = {
        cast("Group", group): tuple(int(token) for token in values.tolist())
        for group, values in _below(arrays, "tokens/").items()
    }
    held: dict[TableKey, tuple[int, ...]] = {}
    try:
        for group, held_tokens in tokens.items():
            for key in tables.keys(group):
                held[key] = _import_pages(_below(arrays, _prefix(key) + "/"), key, len(held_tokens), store, tables)
        saved: dict[Group, Saved] = {
            group: store.import_saved(group, states)
            for group in tokens
            if (states := _below(arrays, f"saved/{group}/"))
        }
    except BaseException:
        for key, pages in held.items():
            tables.forget(key, pages)
        raise
    return Snapshot(identity, tokens, held, saved, snapshot_bytes(held, saved, session, geometry))


def _import_pages(
    arrays: Mapping[str, NDArray[np.generic]], key: TableKey, length: int, store: StateStore, tables: PageTables
) -> tuple[int, ...]:
    by_number: dict[int, dict[str, NDArray[np.generic]]] = {}
    for path, values in arrays.items():
        digits, _, name = path.partition("/")
        by_number.setdefault(int(digits), {})[name] = values
    pages = [GONE] * pages_of(length)
    fresh = tables.fresh(key, len(by_number))
    try:
        for page, (number, states) in zip(fresh, sorted(by_number.items()), strict=True):
            pages[number] = page
            store.import_page(key, page, states)
    except BaseException:
        tables.forget(key, fresh)
        raise
    return tuple(pages)
