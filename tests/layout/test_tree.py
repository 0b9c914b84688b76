"""The lists in pyproject.toml are the tree: a new folder without its entry fails here."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, cast

import pytest
from hatchling.build import build_wheel

from tensorfold.plugins import find_installed
from tensorfold.plugins.found import KINDS

PREFIXES = {
    "models": "tensorfold_model_",
    "dialects": "tensorfold_dialect_",
    "backends": "tensorfold_backend_",
    "auth": "tensorfold_auth_",
    "extras": "tensorfold_extra_",
}

NOT_SHIPPED = ("tools", "tests/acme/src")

Plugins = dict[str, list[str]]
Project = dict[str, Any]


def packages(plugins: Plugins) -> list[str]:
    """Every plugin package."""
    return sorted(name for names in plugins.values() for name in names)


def entry_points(project: Project) -> dict[str, dict[str, str]]:
    """The plugins' entry points: kind to name to module."""
    found: dict[str, dict[str, str]] = {}
    for group, entries in project["project"]["entry-points"].items():
        if group.startswith("tensorfold."):
            found.setdefault(group.split(".")[1], {}).update(entries)
    return found


def contract(project: Project, type: str) -> dict[str, Any]:
    """The import contract of this type."""
    contracts = cast("list[dict[str, Any]]", project["tool"]["importlinter"]["contracts"])
    (only,) = [each for each in contracts if each["type"] == type]
    return only


def test_each_kind_of_plugin_has_its_folder_and_its_prefix(plugins: Plugins) -> None:
    assert sorted(plugins) == sorted(KINDS)
    for kind, names in plugins.items():
        assert all(name.startswith(PREFIXES[kind]) for name in names), kind


def test_each_plugin_folder_is_an_entry_point_and_each_entry_point_a_folder(plugins: Plugins, project: Project) -> None:
    expected = {
        kind: {name.removeprefix(PREFIXES[kind]): name for name in names} for kind, names in plugins.items() if names
    }
    assert entry_points(project) == expected


def test_each_plugin_folder_is_a_typed_package(root: Path, plugins: Plugins) -> None:
    for kind, names in plugins.items():
        for name in names:
            assert (root / "plugins" / kind / name / "__init__.py").is_file(), name
            assert (root / "plugins" / kind / name / "py.typed").is_file(), name


def test_the_installed_entry_points_are_those_of_the_tree(project: Project) -> None:
    installed: dict[str, dict[str, str]] = {}
    for each in find_installed():
        if each.distribution == "tensorfold":
            installed.setdefault(each.kind, {})[each.name] = each.module
    assert installed == entry_points(project)


def test_the_import_contracts_name_every_plugin(plugins: Plugins, project: Project) -> None:
    every = packages(plugins)
    linter = project["tool"]["importlinter"]
    assert sorted(linter["root_packages"]) == sorted(["tensorfold", *every])
    assert contract(project, "independence")["modules"] == every
    forbidden = contract(project, "forbidden")
    assert forbidden["source_modules"] == ["tensorfold"]
    assert set(forbidden["forbidden_modules"]) == {*every, "mlx", "numba", "torch", "transformers"}


def test_the_layers_name_every_module_of_the_core(root: Path, project: Project) -> None:
    core = root / "core" / "tensorfold"
    modules = {path.name for path in core.iterdir() if (path / "__init__.py").is_file()}
    modules |= {path.stem for path in core.glob("*.py")} - {"__init__"}
    layers = contract(project, "layers")["layers"]
    named = {part.strip(" ()") for layer in layers for part in layer.replace(":", "|").split("|")}
    assert named == modules


def test_every_list_of_source_folders_is_the_same(plugins: Plugins, project: Project) -> None:
    sources = ["core", *(f"plugins/{kind}" for kind in plugins)]
    hatch = project["tool"]["hatch"]["build"]
    lists = [
        hatch["dev-mode-dirs"],
        hatch["targets"]["wheel"]["sources"],
        [each for each in project["tool"]["mypy"]["mypy_path"] if each not in NOT_SHIPPED],
        [each for each in project["tool"]["pyright"]["extraPaths"] if each not in NOT_SHIPPED],
        [each for each in project["tool"]["ruff"]["src"] if each not in NOT_SHIPPED],
    ]
    assert all(sorted(each) == sorted(sources) for each in lists)


def test_the_wheel_is_checked_for_the_packages_of_the_tree(plugins: Plugins, project: Project) -> None:
    assert project["tool"]["check-wheel-contents"]["toplevel"] == sorted(["tensorfold", *packages(plugins)])


@pytest.mark.slow
def test_the_built_wheel_holds_every_source_file_and_nothing_else(root: Path, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        wheel = tmp_path / build_wheel(str(tmp_path))
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    sources = [root / "core", *(path for path in (root / "plugins").iterdir() if path.is_dir())]
    expected = {
        path.relative_to(source).as_posix()
        for source in sources
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md"
    }
    assert inside == expected


def test_the_ci_runs_the_readmes_test_command(root: Path) -> None:
    script = (root / ".ci" / "run").read_text(encoding="utf-8")
    (command,) = [line for line in script.splitlines() if line.endswith(".venv/bin/tox || status=$?")]
    assert command.removesuffix(" || status=$?") in (root / "README.md").read_text(encoding="utf-8").splitlines()


def test_each_changelog_fragment_is_one_sentence_of_a_known_kind(root: Path) -> None:
    fragments = [path for path in (root / "changelog.d").iterdir() if path.name != "README.md"]
    assert fragments
    for path in fragments:
        _, kind, suffix = path.name.split(".")
        assert (kind in {"feature", "change", "fix", "removal"}, suffix) == (True, "md"), path.name
        text = path.read_text(encoding="utf-8").strip()
        assert text.endswith("."), path.name
        assert "\n\n" not in text, path.name
