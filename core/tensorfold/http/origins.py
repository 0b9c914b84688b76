"""Which web pages may use the server: origins that may read answers, and names under which it may be reached.

Without either a page of any site could ask a server on this machine, by a request that needs no permission, or by a name
of its own that it makes point here (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import TypeAlias

__all__ = ["Cors", "Headers", "is_own_name"]

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
"""As ASGI has them: names in lower case."""

PREFLIGHT_SECONDS = 600
"""How long a browser may remember a permission."""
_EXPOSED = b"x-request-id, request-id, retry-after, x-should-retry"


class Cors:
    """Answers browsers' questions about origins."""

    def __init__(self, origins: Sequence[str]) -> None:
        """`*` stands for every origin."""
        self._all = "*" in origins
        self._origins = frozenset(origin.rstrip("/").lower().encode() for origin in origins)

    def allowed(self, headers: Headers) -> bytes | None:
        """The request's origin, if its page may read the answer."""
        origin = next((value for name, value in headers if name == b"origin"), None)
        if origin is None or not (self._all or origin.lower() in self._origins):
            return None
        return origin

    @staticmethod
    def granted(origin: bytes) -> list[tuple[bytes, bytes]]:
        """What an answer to this origin's page says besides."""
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"origin"),
        ]

    @staticmethod
    def preflight(origin: bytes, headers: Headers) -> list[tuple[bytes, bytes]]:
        """The headers that answer a preflight: every method and header that the page has asked for."""
        asked = dict(headers)
        answer = [
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-methods", b"GET, HEAD, POST, DELETE"),
            (b"access-control-allow-headers", asked.get(b"access-control-request-headers", b"*")),
            (b"access-control-max-age", b"%d" % PREFLIGHT_SECONDS),
            (b"vary", b"origin, access-control-request-headers"),
        ]
        if asked.get(b"access-control-request-private-network") == b"true":
            answer.append((b"access-control-allow-private-network", b"true"))
        return answer


def is_own_name(host: bytes, allowed: Sequence[str]) -> bool:
    """Whether a Host header names this machine, or one of the allowed names; its port does not matter."""
    name = _name(host)
    if name == "localhost" or name.endswith(".localhost") or name in (each.lower() for each in allowed):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _name(host: bytes) -> str:
    text = host.decode("latin-1").strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0].rstrip(".")
