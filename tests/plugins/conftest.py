"""Distributions made on the spot: a folder on `sys.path` with modules and a dist-info, as pip would leave it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tensorfold.plugins import Found, find_installed

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install("acme", "1.0", {"tensorfold.dialects": {"acme": "acme_dialect"}}, {"acme_dialect": SOURCE})`."""
    before = set(sys.modules)

    def install(
        name: str, version: str, groups: Mapping[str, Mapping[str, str]], modules: Mapping[str, str] | None = None
    ) -> None:
        folder = tmp_path / f"site-{name}-{version}"
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [
            f"[{group}]\n" + "".join(f"{entry} = {module}\n" for entry, module in entries.items())
            for group, entries in groups.items()
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for module, source in (modules or {}).items():
            (folder / f"{module}.py").write_text(textwrap.dedent(source))
        monkeypatch.syspath_prepend(str(folder))

    yield install
    for module in set(sys.modules) - before:
        if module.startswith(("acme", "zeta", "_tensorfold_plugin_")):
            del sys.modules[module]


@pytest.fixture
def foreign() -> Callable[[], list[Found]]:
    """What is installed, without tensorfold's own plugins."""
    return lambda: [each for each in find_installed() if each.distribution != "tensorfold"]
