"""What the Hub says of a repository: its commit and its files, each with the digest that it must have."""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPResponse
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast
from urllib.parse import quote, urlsplit

import msgspec

from tensorfold.errors import CheckpointError, CheckpointNotFound

__all__ = ["Hub", "Listing", "RemoteFile"]

ENDPOINT: Final = "https://huggingface.co"
OFFLINE: Final = "HF_HUB_OFFLINE"
"""Keeps every program of the Hub's from the network."""
SECONDS: Final = 30.0
"""Without a byte, after which a connection is given up."""
_DIGEST: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


class _Large(msgspec.Struct):
    sha256: str
    size: int


class _Sibling(msgspec.Struct):
    rfilename: str
    size: int | None = None
    blobId: str | None = None
    lfs: _Large | None = None


class _Answer(msgspec.Struct):
    sha: str
    siblings: list[_Sibling]


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a repository."""

    path: str
    """Relative, with `/`; leads nowhere else."""
    size: int
    digest: str
    """SHA-256 of the content in 64 digits, or git's SHA-1 of it as a blob in 40; the name of its blob in the cache."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A repository at one commit."""

    name: str
    commit: str
    files: tuple[RemoteFile, ...]


class Hub:
    """Asks one Hub, over the standard library, which knows proxies and certificates."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Endpoint and token come from where every program of the Hub's looks for them."""
        self.endpoint = (environment.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        self._token = _token(environment)
        self._offline = environment.get(OFFLINE, "").upper() in ("1", "ON", "YES", "TRUE")
        self._opener = urllib.request.build_opener(_Redirects)

    def listing(self, name: str, revision: str) -> Listing:
        """The files of a repository.

        Raises:
            CheckpointNotFound: the Hub does not know it, does not show it, or does not answer.
            CheckpointError: its answer cannot be used.
        """
        if self._offline:
            raise CheckpointNotFound(f"{OFFLINE} is set: {name} is not downloaded")
        url = f"{self.endpoint}/api/models/{name}/revision/{quote(revision, safe='')}?blobs=true"
        try:
            with self.open(url) as response:
                answer = msgspec.json.decode(response.read(), type=_Answer)
        except urllib.error.HTTPError as error:
            raise CheckpointNotFound(_refusal(name, revision, error)) from None
        except OSError as error:
            raise CheckpointNotFound(f"{self.endpoint} does not answer: {_reason(error)}") from None
        except msgspec.DecodeError as error:
            raise CheckpointError(f"{self.endpoint} answers what cannot be read of {name}: {error}") from None
        if not _COMMIT.fullmatch(answer.sha):
            raise CheckpointError(f"{self.endpoint} tells no commit of {name}")
        return Listing(name, answer.sha, tuple(_file(name, each) for each in answer.siblings))

    def file_url(self, listing: Listing, file: RemoteFile) -> str:
        """Where a file's content is."""
        return f"{self.endpoint}/{listing.name}/resolve/{listing.commit}/{quote(file.path)}"

    def open(self, url: str, start: int = 0) -> HTTPResponse:
        """Ask for a URL, from byte `start` on; the server may give all of it nevertheless (status 200).

        Raises:
            OSError: no connection, or a refusal (`urllib.error.HTTPError`).
        """
        headers = {"User-Agent": "tensorfold", "Accept-Encoding": "identity"}
        if start:
            headers["Range"] = f"bytes={start}-"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return cast("HTTPResponse", self._opener.open(urllib.request.Request(url, headers=headers), timeout=SECONDS))


class _Redirects(urllib.request.HTTPRedirectHandler):
    """The token goes to the Hub alone, and not to the stores of files that it sends us to."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        """The request for the new place."""
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        if redirected is not None and urlsplit(newurl).netloc != urlsplit(req.full_url).netloc:
            redirected.remove_header("Authorization")
        return redirected


def _file(name: str, sibling: _Sibling) -> RemoteFile:
    path = PurePosixPath(sibling.rfilename)
    if path.is_absolute() or ".." in path.parts or "\\" in sibling.rfilename or not path.parts:
        raise CheckpointError(f"{name} lists a file {sibling.rfilename!r}, which leads out of its folder")
    digest = sibling.lfs.sha256 if sibling.lfs is not None else sibling.blobId
    size = sibling.lfs.size if sibling.lfs is not None else sibling.size
    if digest is None or size is None or size < 0 or not _DIGEST.fullmatch(digest):
        raise CheckpointError(f"the Hub tells neither size nor digest of {path} in {name}, so it cannot be checked")
    return RemoteFile(path.as_posix(), size, digest)


def _token(environment: Mapping[str, str]) -> str | None:
    if token := environment.get("HF_TOKEN"):
        return token.strip()
    home = environment.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    file = Path(environment.get("HF_TOKEN_PATH") or os.path.join(home, "token"))
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None


def _refusal(name: str, revision: str, error: urllib.error.HTTPError) -> str:
    try:
        said = str(json.loads(error.read()).get("error", ""))
    except (OSError, ValueError, AttributeError):
        said = ""
    match error.code:
        case 401 | 403:
            why = "it is not there, or needs a token: set HF_TOKEN, and accept its terms on its page"
        case 404:
            why = f"there is no such model, or no revision {revision} of it"
        case code:
            why = f"the Hub answers {code}"
    return f"{name} cannot be pulled: {why}" + (f" ({said})" if said else "")


def _reason(error: OSError) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)
