"""Where a server listens: an address or a socket file, with TLS or without."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
import stat
from pathlib import Path

from tensorfold.errors import ConfigError
from tensorfold.http.settings import ServerSettings

__all__ = ["check_listening", "check_tls", "is_local", "listen", "remove_socket", "url_of"]

BACKLOG = 2048


def check_listening(settings: ServerSettings) -> None:
    """Look whether a server could listen so, and leave nothing behind.

    Raises:
        ConfigError: it could not.
    """
    check_tls(settings)
    listen(settings).close()
    remove_socket(settings)


def listen(settings: ServerSettings) -> socket.socket:
    """A listening socket.

    Raises:
        ConfigError: the name is unknown, the address is taken or not ours, or the socket file cannot be made.
    """
    if settings.unix_socket is not None:
        return _listen_unix(settings.unix_socket)
    return _listen_tcp(settings.host, settings.port)


def _listen_tcp(host: str, port: int) -> socket.socket:
    if not 0 <= port < 1 << 16:  # the resolver would take it modulo 65,536
        raise ConfigError(f"cannot listen on port {port}: ports are from 0 to 65535; choose another with --port")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot listen on {host} port {port}: {reason}; choose another with --host") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {host} port {port}: {_way_out(error)}") from None
    listener.setblocking(False)
    return listener


def _way_out(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "another program listens there; stop it or choose another with --port"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address; choose another with --host"
        case errno.EACCES:
            return "ports below 1024 are the system's; choose another with --port"
        case _:
            return error.strerror or str(error)


def _listen_unix(path: Path) -> socket.socket:
    """A socket file that its owner alone may connect to; one that an ended server has left behind is replaced."""
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError("this system has no unix sockets: listen on an address, with --host and --port")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        listener.listen(BACKLOG)
    except ConfigError:
        listener.close()
        raise
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on the unix socket {path}: {error.strerror or error}") from None
    listener.setblocking(False)
    return listener


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{path} is there and is no socket: choose another path with --unix-socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
        try:
            visitor.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
        else:
            raise ConfigError(
                f"another program listens on the unix socket {path}; stop it or choose another with --unix-socket"
            )


def remove_socket(settings: ServerSettings) -> None:
    """Remove the socket file that the settings name, if there is one."""
    path = settings.unix_socket
    if path is not None and path.is_socket():
        path.unlink(missing_ok=True)


def check_tls(settings: ServerSettings) -> None:
    """Look whether the certificate and its key can be used.

    Raises:
        ConfigError: one is missing or cannot be read, or they do not belong together.
    """
    certificate, key = settings.tls_cert, settings.tls_key
    if certificate is None:
        if key is not None:
            raise ConfigError("--tls-key is given without --tls-cert: TLS needs both")
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except FileNotFoundError:
        missing = next(str(file) for file in (certificate, key) if file is not None and not file.exists())
        raise ConfigError(f"there is no file {missing} for TLS") from None
    except (OSError, ssl.SSLError) as error:
        names = f"{certificate} and {key}" if key is not None else f"{certificate} (and no --tls-key)"
        reason = getattr(error, "reason", None) or error.strerror or str(error)
        raise ConfigError(f"{names} cannot be used for TLS: {reason}") from None


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """The URL under which a listening socket is reached from this machine; `unix:PATH` for a socket file."""
    if hasattr(socket, "AF_UNIX") and listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    address = ipaddress.ip_address(host.partition("%")[0])
    if address.is_unspecified:
        host = "127.0.0.1" if address.version == 4 else "::1"
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_local(listener: socket.socket) -> bool:
    """Whether only this machine reaches it."""
    if hasattr(socket, "AF_UNIX") and listener.family == socket.AF_UNIX:
        return True
    return ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
