"""Pages that build something: their files, written to a folder, and their commands, run there.

A block of code whose info string has `file=PATH` is a file. A block `console` is commands (`$ `) and what they print,
in which `...` stands for anything. A command that ends with `&` is a server: the next one waits until it is ready.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import httpx

__all__ = ["Command", "File", "Follower", "steps_of"]

PORT = ":8080"
"""What pages say; servers under test take any port."""
PATIENCE = 240.0
"""Seconds for a command, and for a server to be ready."""

_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class File:
    """A file of the page."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the page, and what it prints."""

    line: str
    output: str


def steps_of(page: str) -> list[File | Command]:
    """What a page says to do, in its order."""
    steps: list[File | Command] = []
    for language, info, content in _BLOCK.findall(page):
        if (named := re.search(r"file=(\S+)", info)) is not None:
            steps.append(File(named[1], content))
        elif language == "console":
            steps += _commands(content)
    return steps


def _commands(content: str) -> Iterator[Command]:
    for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output)


class Follower:
    """Follows a page in a folder. Use as a context manager: its servers end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[subprocess.Popen[str]] = []
        self._address = PORT
        programs = folder / "programs"
        programs.mkdir()
        for name, command in (("tensorfold", "-m tensorfold"), ("python", "")):
            script = programs / name
            script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {command} "$@"\n')
            script.chmod(0o755)
        self._environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.terminate()
            server.communicate(timeout=60)

    def follow(self, steps: Sequence[File | Command]) -> None:
        """Every step; what a command prints must be what the page shows."""
        for step in steps:
            match step:
                case File(path, content):
                    target = self._folder / path
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_text(content, encoding="utf-8")
                case Command(line, _) if line.endswith(" &"):
                    self._serve(line.removesuffix(" &"))
                case Command(line, output):
                    said = self._fetch(line) if line.startswith("curl ") else self._run(line)
                    assert _matches(said, output), f"$ {line}\n{said}\nand the page says:\n{output}"

    def _run(self, line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"$ {line}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def _serve(self, line: str) -> None:
        server = subprocess.Popen(
            ["sh", "-c", re.sub(r"^((?:\w+=\S+ )*)", r"\1exec ", line.replace("--port 8080", "--port 0"))],
            cwd=self._folder,
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._servers.append(server)
        assert server.stderr is not None
        said: list[str] = []
        timer = threading.Timer(PATIENCE, server.kill)
        timer.start()
        for text in server.stderr:
            said.append(text)
            if (found := re.search(r"address +http://127\.0\.0\.1(:\d+)/v1", text)) is not None:
                self._address = found[1]
                break
        else:
            raise AssertionError("".join(said))
        timer.cancel()

    def _fetch(self, line: str) -> str:
        """What `curl` would print, on machines that have none."""
        _, *words = shlex.split(line)
        url, headers, body = "", dict[str, str](), None
        while words:
            match words.pop(0):
                case "-s":
                    pass
                case "-H":
                    name, _, value = words.pop(0).partition(":")
                    headers[name] = value.strip()
                case "-d":
                    body = words.pop(0)
                case word:
                    url = word.replace(PORT, self._address)
        method = "GET" if body is None else "POST"
        return httpx.request(method, url, headers=headers, content=body, timeout=PATIENCE).text + "\n"


def _matches(said: str, output: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in output.rstrip("\n").split("..."))
    return re.fullmatch(pattern, said.rstrip("\n"), re.DOTALL) is not None
