"""Plugins of a folder that is not installed: a project with its pyproject.toml, or a package."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from tensorfold.errors import PluginNotFound
from tensorfold.plugins.found import GROUPS, FolderModule, Found

__all__ = ["find_in_folder"]


def find_in_folder(folder: Path) -> tuple[Found, ...]:
    """What the entry points of the project in a folder offer; of a package, the package itself.

    Raises:
        PluginNotFound: the folder holds neither, or an entry point's module is not in it.
    """
    folder = folder.resolve()
    project = folder / "pyproject.toml"
    if project.is_file():
        found = tuple(_of_project(folder, project))
        if not found:
            groups = ", ".join(group for group, _ in GROUPS)
            raise PluginNotFound(f"{project} names no plugin: give it an entry point in one of the groups {groups}")
        return found
    if (folder / "__init__.py").is_file():
        return (Found("extras", folder.name, FolderModule(folder.parent, folder.name), str(folder)),)
    raise PluginNotFound(f"there is no plugin in {folder}: it has neither a pyproject.toml nor an __init__.py")


def _of_project(folder: Path, project: Path) -> Iterator[Found]:
    try:
        document = tomllib.loads(project.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PluginNotFound(f"{project} cannot be read: {error}") from error
    about = _table(document, "project")
    name, version = str(about.get("name", folder.name)), str(about.get("version", ""))
    offered = _table(about, "entry-points")
    for group, kind in GROUPS:
        for entry, value in _table(offered, group).items():
            module = str(value).partition(":")[0].strip()
            yield Found(kind, entry, FolderModule(_root(folder, module), module), name, version)


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = document.get(key)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _root(folder: Path, module: str) -> Path:
    """Where the module's package lies: under `src`, or beside pyproject.toml."""
    top = module.partition(".")[0]
    for root in (folder / "src", folder):
        if (root / top).is_dir() or (root / f"{top}.py").is_file():
            return root
    raise PluginNotFound(
        f"{folder / 'pyproject.toml'} names the module {module}, and it is neither in src nor beside it"
    )
