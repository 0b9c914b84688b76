"""Socket files and TLS, and what a server refuses to start on."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tensorfold.cli.client import Address, Client
from tensorfold.cli.completion import model_of
from tensorfold.errors import ClientError, ConfigError
from tensorfold.http import ServerSettings
from tensorfold.http.listening import check_listening
from tensorfold.testing.serving import served

Rig = Callable[..., Any]


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose name is short enough for a socket's."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that it has signed itself, for 127.0.0.1, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *names], check=True, capture_output=True, timeout=60)
    return cert, key


def test_a_socket_file_is_served_and_is_its_owners_alone(rig: Rig, short: Path, chat: dict[str, Any]) -> None:
    path = short / "api.sock"
    with served(rig().app, ServerSettings(unix_socket=path, drain_seconds=0.0)) as url:
        assert url == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://localhost") as client:
            assert client.get("/health").json()["status"] == "ok"
            assert client.post("/v1/chat/completions", json={**chat, "stream": True}).text.endswith("[DONE]\n\n")
    assert not path.exists()


def test_a_socket_file_that_an_ended_server_left_behind_is_replaced(rig: Rig, short: Path) -> None:
    path = short / "api.sock"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    with served(rig().app, ServerSettings(unix_socket=path, drain_seconds=0.0)):
        assert path.is_socket()


def test_a_socket_file_that_cannot_be_ours_is_refused(short: Path) -> None:
    taken, other = short / "taken.sock", short / "file"
    other.write_text("precious")
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(taken))
        owner.listen()
        with pytest.raises(ConfigError, match="another program listens on the unix socket"):
            check_listening(ServerSettings(unix_socket=taken))
    with pytest.raises(ConfigError, match="is no socket"):
        check_listening(ServerSettings(unix_socket=other))
    with pytest.raises(ConfigError, match="cannot listen on the unix socket"):
        check_listening(ServerSettings(unix_socket=short / ("x" * 200)))
    with pytest.raises(ConfigError, match="cannot listen on the unix socket"):
        check_listening(ServerSettings(unix_socket=short / "no-such-folder" / "api.sock"))
    assert other.read_text() == "precious"


def test_looking_leaves_no_socket_file_behind(short: Path) -> None:
    check_listening(ServerSettings(unix_socket=short / "api.sock"))
    assert list(short.iterdir()) == []


def test_https_is_served_with_a_certificate(rig: Rig, certificate: tuple[Path, Path], chat: dict[str, Any]) -> None:
    cert, key = certificate
    settings = ServerSettings(port=0, drain_seconds=0.0, tls_cert=cert, tls_key=key)
    trust = ssl.create_default_context(cafile=str(cert))
    with served(rig().app, settings) as url:
        assert url.startswith("https://127.0.0.1:")
        with httpx.Client(base_url=url, verify=trust, timeout=20) as client:
            answer = client.post("/v1/chat/completions", json={**chat, "stream": True})
            assert answer.text.endswith("[DONE]\n\n")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health", timeout=20)  # a client that does not know the certificate
        with pytest.raises(httpx.HTTPError):
            httpx.get(url.replace("https", "http") + "/health", timeout=20)


def test_our_own_client_tells_a_certificate_that_it_does_not_trust(
    rig: Rig, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate

    async def ask(url: str) -> str:
        client = Client(Address.of(url))
        try:
            return await model_of(client)
        finally:
            await client.close()
            await asyncio.sleep(0.05)  # a connection whose handshake failed is closed in the loop's next turns

    with served(rig().app, ServerSettings(port=0, drain_seconds=0.0, tls_cert=cert, tls_key=key)) as url:
        with pytest.raises(ClientError, match="its certificate is not trusted here"):
            asyncio.run(ask(url))
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        assert asyncio.run(ask(url)) == "acme/quokka"


def test_a_certificate_that_cannot_be_used_stops_the_start(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    cert, key = certificate
    both = tmp_path / "both.pem"
    both.write_bytes(cert.read_bytes() + key.read_bytes())
    check_listening(ServerSettings(port=0, tls_cert=both))
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"tls_key": key}, "--tls-key is given without --tls-cert"),
        ({"tls_cert": cert}, "no --tls-key"),
        ({"tls_cert": tmp_path / "none.pem", "tls_key": key}, "there is no file .*none.pem for TLS"),
        ({"tls_cert": cert, "tls_key": cert}, "cannot be used for TLS"),
        ({"tls_cert": key, "tls_key": key}, "cannot be used for TLS"),
    )
    for settings, message in cases:
        with pytest.raises(ConfigError, match=message):
            check_listening(ServerSettings(port=0, **settings))


def test_a_socket_file_cannot_be_reached_by_others(short: Path) -> None:
    """The mask that makes it so is the process's own again afterwards."""
    mask = os.umask(0o022)
    os.umask(mask)
    check_listening(ServerSettings(unix_socket=short / "api.sock"))
    after = os.umask(mask)
    assert after == mask
