"""Plugins of folders that are not installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tensorfold.errors import PluginFailed, PluginNotFound
from tensorfold.plugins import Found, Plugins, Wanted
from tensorfold.plugins.folders import find_in_folder

Install = Callable[..., None]

MODULE = """
from tensorfold import hookimpl
from tensorfold.contracts.settings import SettingsTable
from {package}.table import NAME

@hookimpl
def tensorfold_settings():
    yield SettingsTable(NAME, ())
"""


def project(folder: Path, package: str, *, under: str = "src", group: str = "tensorfold.extras") -> Path:
    """A project with one plugin, in a package of two modules."""
    root = folder / under / package
    root.mkdir(parents=True)
    (root / "__init__.py").write_text(MODULE.format(package=package))
    (root / "table.py").write_text(f'NAME = "extras.{package}"\n')
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "{package}-dist"\nversion = "2"\n[project.entry-points."{group}"]\n{package} = "{package}"\n'
    )
    return folder


def tables(plugins: Plugins) -> list[str]:
    return [offered.value.name for offered in plugins.settings()]


@pytest.mark.parametrize("under", ["src", "."])
def test_a_projects_entry_points_are_its_plugins(tmp_path: Path, under: str) -> None:
    package = "acme_in_src" if under == "src" else "acme_beside"
    project(tmp_path, package, under=under)
    plugins = Plugins(Wanted(plugins=(str(tmp_path),)), installed=[])
    assert tables(plugins) == [f"extras.{package}"]
    (state,) = plugins.states
    assert (state.kind, state.name, state.distribution, state.version) == ("extras", package, f"{package}-dist", "2")


def test_an_optional_dialect_is_on_when_its_folder_is_asked_for(tmp_path: Path) -> None:
    (found,) = find_in_folder(project(tmp_path, "acme_optional", group="tensorfold.dialects.optional"))
    assert found.id == "dialects/acme_optional"
    (state,) = Plugins(Wanted(plugins=(str(tmp_path),)), installed=[]).states
    assert state.state == "loaded"


def test_a_package_is_a_plugin_by_itself(tmp_path: Path) -> None:
    project(tmp_path, "acme_package", under=".")
    plugins = Plugins(Wanted(plugins=(str(tmp_path / "acme_package"),)), installed=[])
    assert tables(plugins) == ["extras.acme_package"]


def test_a_folder_stands_in_for_the_installed_distribution(
    tmp_path: Path, install: Install, foreign: Callable[[], list[Found]]
) -> None:
    """Who works on a plugin has it installed too: the folder counts, and there is no conflict."""
    install(
        "acme_twice_dist", "1.0", {"tensorfold.extras": {"acme_twice": "acme_twice"}}, {"acme_twice": "raise OSError"}
    )
    folder = project(tmp_path / "work", "acme_twice")
    plugins = Plugins(Wanted(plugins=(str(folder),)), foreign())
    (state,) = plugins.states
    assert (state.version, state.state) == ("2", "loaded")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has neither a pyproject.toml nor an __init__.py"),
        ({"pyproject.toml": "[project]\nname='x'\n"}, "names no plugin"),
        ({"pyproject.toml": "not toml"}, "cannot be read"),
        (
            {"pyproject.toml": '[project]\nname="x"\n[project.entry-points."tensorfold.auth"]\na="acme_nowhere:x"\n'},
            "names the module acme_nowhere, and it is neither in src nor beside it",
        ),
    ],
)
def test_a_folder_without_plugins_is_told(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(PluginNotFound, match=message):
        Plugins(Wanted(plugins=(str(tmp_path),)), installed=[])


def test_a_folder_whose_module_fails_stops_the_start(tmp_path: Path) -> None:
    project(tmp_path, "acme_fails")
    (tmp_path / "src" / "acme_fails" / "table.py").unlink()
    with pytest.raises(PluginFailed, match="acme_fails"):
        Plugins(Wanted(plugins=(str(tmp_path),)), installed=[])
