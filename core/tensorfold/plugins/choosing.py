"""Which of the plugins that could be imported are: what the user said, against what is installed."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tensorfold.errors import ConfigError, PluginConflict, PluginNotFound
from tensorfold.plugins.folders import find_in_folder
from tensorfold.plugins.found import Found
from tensorfold.plugins.wanted import Wanted

__all__ = ["Choice", "choose"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A plugin, and whether it shall be imported."""

    found: Found
    asked: bool
    """Asked for by name: its failure stops the server."""
    off: str | None = None
    """Why it is not imported; None: it is."""


def choose(installed: Sequence[Found], wanted: Wanted) -> tuple[Choice, ...]:
    """What is imported and what is not, of the installed plugins and the modules, files and folders that were asked for.

    A folder's plugins stand in for those of its distribution that are installed.

    Raises:
        PluginNotFound: a name, asked for or blocked, that nobody offers, or a folder without plugins.
        PluginConflict: two distributions offer one name.
        ConfigError: a plugin is asked for and blocked.
    """
    unpacked = [found for file in wanted.files if file.is_dir() for found in find_in_folder(file)]
    replaced = {(each.id, _normal(each.distribution)) for each in unpacked}
    installed = [each for each in installed if (each.id, _normal(each.distribution)) not in replaced]
    _check_names([*installed, *unpacked], wanted)
    named = {each.module for each in installed}
    choices = [_choice(each, wanted) for each in installed]
    choices += [
        Choice(Found("extras", module, module, module), asked=True) for module in wanted.modules if module not in named
    ]
    files = [file for file in wanted.files if not file.is_dir()]
    choices += [Choice(Found("extras", file.stem, file, str(file)), asked=True) for file in files]
    choices += [Choice(found, asked=True) for found in unpacked]
    _check_distinct(choice.found for choice in choices if choice.off is None)
    return tuple(choices)


def _choice(found: Found, wanted: Wanted) -> Choice:
    asked = found.id in wanted.ids or found.module in wanted.modules
    if found.id in wanted.blocked:
        if asked:
            raise ConfigError(f"plugin {found.id} is asked for and blocked by --plugin no:{found.id}")
        return Choice(found, asked, off=f"blocked by --plugin no:{found.id}")
    if asked:
        return Choice(found, asked)
    if found.kind == "dialects" and wanted.dialects:
        return Choice(found, asked, off=f"not among --dialect {', '.join(wanted.dialects)}")
    if found.kind == "backends" and wanted.backend is not None:
        return Choice(found, asked, off=f"--backend {wanted.backend} was asked for")
    if not found.on:
        return Choice(found, asked, off=f"off by default: --plugin {found.id} turns it on")
    return Choice(found, asked)


def _normal(distribution: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _check_names(installed: Sequence[Found], wanted: Wanted) -> None:
    known = {each.id for each in installed}
    # A dialect or backend may also be the work of a module or file that was asked for: the catalog checks those.
    later = {id for id in wanted.ids if id not in wanted.plugins} if wanted.modules or wanted.files else set[str]()
    for id in sorted((wanted.ids | wanted.blocked) - known - later):
        kind = id.partition("/")[0]
        alike = sorted(each for each in known if each.startswith(f"{kind}/"))
        raise PluginNotFound(f"no plugin {id}; there {_are(alike)}")


def _are(ids: Sequence[str]) -> str:
    return f"{'is' if len(ids) == 1 else 'are'} {', '.join(ids) or 'none of its kind'}"


def _check_distinct(loaded: Iterable[Found]) -> None:
    by_id: dict[str, list[Found]] = defaultdict(list)
    for found in loaded:
        by_id[found.id].append(found)
    for id, several in by_id.items():
        if len(several) > 1:
            origins = " and ".join(each.origin for each in several)
            raise PluginConflict(f"{origins} both offer a plugin {id}: uninstall one, or start with --plugin no:{id}")
