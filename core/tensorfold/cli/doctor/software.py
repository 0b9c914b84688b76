"""Python, the packages that the distribution asks for, and the plugins."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, requires, version

from tensorfold.cli.doctor.finding import Finding
from tensorfold.cli.early import Launch

__all__ = ["look_at_packages", "look_at_plugins", "look_at_python"]

FLOOR = (3, 11)
_FOR = {
    "torch": "computes on NVIDIA GPUs",
    "grammar": "keeps replies to a schema, regex or grammar",
    "otel": "sends traces",
    "mlx": "computes on Apple's GPUs",
}
"""Extras that a server gains from, and what."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?[^;]*(?:;\s*(.*))?")

Version = Callable[[str], str]
"""The version of an installed distribution; raises `PackageNotFoundError`."""


def look_at_python() -> Iterator[Finding]:
    """Its version, and where it is."""
    said = f"Python {platform.python_version()} at {sys.executable}, {platform.system()} {platform.machine()}"
    if sys.version_info[:2] < FLOOR:
        yield Finding("python", "problem", said, "install Python 3.11 or later, and tensorfold into it")
    else:
        yield Finding("python", "ok", said)


def look_at_packages(needed: Sequence[str] | None = None, installed: Version = version) -> Iterator[Finding]:
    """What tensorfold asks for, and the extras that a server gains from.

    Args:
        needed: requirements as metadata has them; None: tensorfold's own.
    """
    extras: dict[str, list[str]] = {}
    lacking: list[str] = []
    for requirement in needed if needed is not None else requires("tensorfold") or ():
        match = _REQUIREMENT.match(requirement)
        if match is None:
            continue
        name, _, least, marker = match.groups()
        system = re.search(r"sys_platform\s*==\s*['\"](\w+)['\"]", marker or "")
        if system is not None and system.group(1) != sys.platform:
            continue
        extra = re.search(r"extra\s*==\s*['\"](\w+)['\"]", marker or "")
        fault = _fault(name, least, installed)
        if extra is not None:
            extras.setdefault(extra.group(1), [])
            if fault is not None:
                extras[extra.group(1)].append(fault)
        elif fault is not None and not marker:  # what other systems need may be missing here
            lacking.append(fault)
    if lacking:
        yield Finding("packages", "problem", ", ".join(lacking), "pip install --upgrade tensorfold")
    else:
        yield Finding("packages", "ok", f"tensorfold {installed('tensorfold')} has all that it needs")
    for name, purpose in _FOR.items():
        if name not in extras:
            continue
        if extras[name]:
            todo = f"pip install 'tensorfold[{name}]', which {purpose}"
            yield Finding("packages", "note", f"extra {name}: {', '.join(extras[name])}", todo)
        else:
            yield Finding("packages", "ok", f"extra {name}, which {purpose}")


def _fault(name: str, least: str | None, installed: Version) -> str | None:
    """What is wrong with a package; None: nothing."""
    try:
        there = installed(name)
    except PackageNotFoundError:
        return f"{name} is not installed"
    if least is not None and _numbers(there) < _numbers(least):
        return f"{name} is {there}, and {least} or later is needed"
    return None


def _numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version, as many as can be compared: `2.13.0+cpu` is (2, 13, 0)."""
    match = re.match(r"\d+(\.\d+)*", text)
    numbers = tuple(int(part) for part in match.group().split(".")) if match else ()
    while numbers and numbers[-1] == 0:
        numbers = numbers[:-1]
    return numbers


def look_at_plugins(launch: Launch) -> Iterator[Finding]:
    """Those that are left out, and why."""
    launch.plugins.backends()  # some find out only when they are asked that their library is missing
    loaded = 0
    for state in launch.plugins.states:
        name = f"{state.kind}/{state.name} of {state.distribution} {state.version}"
        match state.state:
            case "loaded":
                loaded += 1
            case "failed":
                todo = f"mend it, or leave it out: --plugin no:{state.kind}/{state.name}"
                yield Finding("plugins", "problem", f"{name} fails: {state.reason}", todo)
            case _:
                yield Finding("plugins", "note", f"{name} is {state.state}: {state.reason}")
    yield Finding("plugins", "ok", f"{loaded} are loaded")
