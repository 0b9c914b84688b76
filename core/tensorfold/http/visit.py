"""What the layers of the application know of one HTTP request."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tensorfold.contracts.auth import Principal
from tensorfold.contracts.dialect import ErrorEncoder
from tensorfold.http.connection import Connection
from tensorfold.http.flight import Flight
from tensorfold.http.request_log import Recording
from tensorfold.ir import Request, TraceContext

__all__ = ["SCOPE_KEY", "Visit", "request_names"]

SCOPE_KEY = "tensorfold.visit"
"""Where the visit stands in the ASGI scope."""

_SANE_ID = re.compile(r"[A-Za-z0-9._:/-]{1,128}", re.ASCII)


@dataclass(slots=True)
class Visit:
    """One request, from its headers to its log line. Filled in as it goes."""

    id: str
    """Ours, unique: engine, answers and logs use it."""
    name: str
    """What the response's headers say: the client's own id when it sent a sane one, else ours."""
    connection: Connection
    arrived: float = field(default_factory=time.monotonic)
    created: int = field(default_factory=lambda: int(time.time()))
    """Seconds since the epoch."""
    trace: TraceContext | None = None
    principal: Principal | None = None
    endpoint: str = ""
    """The route's template; empty: no route."""
    status: int = 0
    """0: nothing answered yet."""
    errors: ErrorEncoder | None = None
    """Whose envelope errors have from here on; None: its path's dialect's."""
    code: str = ""
    """The error's type, when it was one."""
    flight: Flight | None = None
    """What generates, if anything."""
    recording: Recording | None = None
    """Its file, when requests are logged."""

    @property
    def label(self) -> str:
        """Of the key that asked; empty: none was needed, or none was right."""
        return self.principal.label if self.principal else ""

    def sent(self, request: Request) -> Request:
        """The request with what is known of its sender."""
        if self.principal is None and self.trace is None:
            return request
        return msgspec.structs.replace(request, principal=self.label or None, trace=self.trace)

    @staticmethod
    def of(scope: Any) -> Visit:
        """That of an ASGI scope."""
        visit = scope[SCOPE_KEY]
        assert isinstance(visit, Visit)
        return visit


def request_names(offered: str | None) -> tuple[str, str]:
    """Our id of a request and the name that its answer carries; `offered` is the client's `x-request-id`."""
    own = uuid.uuid4().hex
    return own, offered if offered and _SANE_ID.fullmatch(offered) else f"req_{own}"
