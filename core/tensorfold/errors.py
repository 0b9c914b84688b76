"""Every exception that tensorfold raises on purpose, as a tree.

TensorfoldError
├── PluginError                  a plugin, while the server starts
│   ├── PluginUnavailable        raised by a plugin: its package or device is missing
│   ├── PluginNotFound           a name that no distribution offers
│   ├── PluginFailed             a plugin that was asked for cannot be loaded
│   └── PluginConflict           two plugins claim one name or path
├── ConfigError                  a flag, variable or setting that cannot be used
├── ClientError                  a server that our own client (chat, bench) talks to is not there, or refuses
├── CheckpointError              a model that cannot be served
│   ├── CheckpointNotFound
│   ├── CheckpointDamaged        truncated, corrupt or hostile files; names file and offset
│   ├── CheckpointUnsupported    readable, but no family or a feature of it is not run
│   └── WeightsMismatch          missing or misshapen tensors, all named at once
├── BackendError                 the device refuses
│   └── OutOfPages               the state pool has no room for the rows of a step
└── RequestError                 a request that gets an HTTP error; carries status, code and param
    ├── DecodeError              400: the body has not the shape that the dialect asks for
    ├── InvalidRequest           400: the shape is right, the meaning is impossible
    ├── Unsupported              400: a known field that this server cannot honour
    ├── ContextLengthExceeded    400: prompt and reply do not fit the window
    ├── Unauthorized             401
    ├── Forbidden                403: a good credential that may not do this
    ├── NotFound                 404
    ├── MethodNotAllowed         405
    ├── PayloadTooLarge          413
    ├── UnsupportedMedia         415
    ├── Rejected                 429 or 503, with Retry-After
    └── GenerationFailed         500: the engine failed this request
"""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "LOOP_DETECTED",
    "BackendError",
    "CheckpointDamaged",
    "CheckpointError",
    "CheckpointNotFound",
    "CheckpointUnsupported",
    "ClientError",
    "ConfigError",
    "ContextLengthExceeded",
    "DecodeError",
    "Forbidden",
    "GenerationFailed",
    "InvalidRequest",
    "MethodNotAllowed",
    "NotFound",
    "OutOfPages",
    "PayloadTooLarge",
    "PluginConflict",
    "PluginError",
    "PluginFailed",
    "PluginNotFound",
    "PluginUnavailable",
    "Rejected",
    "RequestError",
    "TensorfoldError",
    "Unauthorized",
    "Unsupported",
    "UnsupportedMedia",
    "WeightsMismatch",
]

LOOP_DETECTED = "loop_detected"
"""The code of a reply that was to fail when it only repeats itself, and does."""


class TensorfoldError(Exception):
    """The root: an expected failure whose message is written for the user."""


class PluginError(TensorfoldError):
    """A plugin cannot be used."""


class PluginUnavailable(PluginError):
    """Raised by a plugin at import or in a hook: what it needs is not on this machine.

    The message says what is missing and how to get it (`needs torch: pip install 'tensorfold[torch]'`).
    """


class PluginNotFound(PluginError):
    """A plugin name, asked for or blocked, that no installed distribution offers."""


class PluginFailed(PluginError):
    """A plugin that was asked for by name cannot be loaded, or a hook of a loaded one raised."""


class PluginConflict(PluginError):
    """Two plugins claim one name, path or key; the message names both distributions."""


class ConfigError(TensorfoldError):
    """A flag, environment variable or setting has a value that cannot be used."""


class ClientError(TensorfoldError):
    """A server that `tensorfold chat` or `bench` talks to cannot be reached, breaks off, or answers with an error."""


class CheckpointError(TensorfoldError):
    """A model that cannot be served."""


class CheckpointNotFound(CheckpointError):
    """No folder, file, package or Hub entry of that name; the message lists where it was looked for."""


class CheckpointDamaged(CheckpointError):
    """A checkpoint file is truncated, corrupt or hostile."""

    def __init__(self, path: Path, offset: int, problem: str) -> None:
        super().__init__(f"{path}: at byte {offset}: {problem}")
        self.path = path
        """The file that cannot be read."""
        self.offset = offset
        """Where in the file the problem begins, in bytes."""


class CheckpointUnsupported(CheckpointError):
    """A checkpoint that can be read and not run: no family claims it, or it has a feature that none runs."""


class WeightsMismatch(CheckpointError):
    """Tensors are missing, unexpected or misshapen; the message names all of them at once."""


class BackendError(TensorfoldError):
    """A backend or its device refuses an operation."""


class OutOfPages(BackendError):
    """The pool of state pages has no room for the rows of a step; nothing was changed."""


class RequestError(TensorfoldError):
    """A request that gets an error answer, in its dialect's envelope."""

    status = 400
    """The HTTP status of the answer when nothing was sent before."""
    type = "invalid_request_error"
    """The error's kind, in the words that the OpenAI and Anthropic APIs share."""

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        """What is wrong and what to do, for the caller."""
        self.param = param
        """The field that the error is about, as a name or a path; None when it is about no single field."""
        self.code = code
        """A machine-readable code (`context_length_exceeded`); None when the API defines none."""

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same request may succeed; None: not by waiting."""
        return None


class DecodeError(RequestError):
    """The body is not JSON, or has not the shape that the dialect asks for; names the place."""


class InvalidRequest(RequestError):
    """The shape is right and the meaning is impossible (a negative temperature, no messages)."""


class Unsupported(RequestError):
    """A known field with a value that this server cannot honour."""


class ContextLengthExceeded(RequestError):
    """The rendered prompt and the reserved reply do not fit the window."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class Unauthorized(RequestError):
    """The credential is missing or not valid."""

    status = 401
    type = "authentication_error"


class Forbidden(RequestError):
    """The credential is good, and may not do this."""

    status = 403
    type = "permission_error"


class NotFound(RequestError):
    """There is nothing at this path."""

    status = 404
    type = "not_found_error"


class MethodNotAllowed(RequestError):
    """The path exists and does not take this method."""

    status = 405


class PayloadTooLarge(RequestError):
    """The body is longer than the server reads."""

    status = 413
    type = "request_too_large"


class UnsupportedMedia(RequestError):
    """The body has a media type or an encoding that the endpoint does not read."""

    status = 415


class Rejected(RequestError):
    """The server is full or is going away: the same request may succeed later."""

    type = "overloaded_error"

    def __init__(self, message: str, *, status: int = 503, retry_after: float = 1.0, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.status = status
        self._retry_after = retry_after

    @property
    def retry_after(self) -> float | None:
        """Seconds to wait, at most 60, since SDKs stop retrying or hang on large values."""
        return min(self._retry_after, 60.0)


class GenerationFailed(RequestError):
    """The engine failed this request; others go on."""

    status = 500
    type = "server_error"

    @property
    def lasting(self) -> bool:
        """Whether the same request fails again, since a reply is a function of its request."""
        return self.code == LOOP_DETECTED
