"""What the configuration says reaches the server that listens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorfold.cli.application import http_settings, server_settings
from tensorfold.config import ServeConfig, load_config


def config(**flags: Any) -> ServeConfig:
    return load_config((), None, {}, {("", name): value for name, value in flags.items()})


@pytest.mark.parametrize(
    ("flags", "allowed"),
    [
        ({}, ()),
        ({"host": "localhost"}, ()),
        ({"host": "::1"}, ()),
        ({"host": "127.0.0.1", "allowed_host": ("mine.example",)}, ("mine.example", "127.0.0.1")),
        ({"host": "0.0.0.0"}, None),
        ({"host": "192.168.0.7"}, None),
        ({"host": "0.0.0.0", "allowed_host": ("mine.example",)}, ("mine.example", "0.0.0.0")),
        ({"allowed_host": ("*",)}, None),
        ({"unix_socket": "/run/api.sock"}, None),
    ],
)
def test_names_are_checked_where_only_this_machine_listens(flags: dict[str, Any], allowed: Any) -> None:
    """DNS rebinding needs a server that trusts whoever reaches it; who listens to all has keys for that."""
    assert http_settings(config(**flags)).allowed_hosts == allowed


def test_every_limit_can_be_set(tmp_path: Path) -> None:
    numbers = {
        "max_connections": 3,
        "max_requests": 4,
        "head_limit": 2048,
        "head_timeout": 5.5,
        "body_timeout": 6.5,
        "idle_timeout": 7,
        "write_timeout": 8.5,
        "pending_limit": 9000,
        "body_limit": 10_000,
    }
    environment = {f"TENSORFOLD_{name.upper()}": str(value) for name, value in numbers.items()}
    made = load_config((), None, environment, {})
    http, server = http_settings(made), server_settings(made)
    assert (server.max_connections, http.max_requests, http.max_head, server.max_head) == (3, 4, 2048, 2048)
    assert (server.head_seconds, http.body_idle_seconds, server.idle_seconds) == (5.5, 6.5, 7)
    assert (server.write_seconds, http.max_pending, http.max_body) == (8.5, 9000, 10_000)


def test_origins_socket_and_certificate_can_be_set() -> None:
    made = config(cors_origin=("https://a", "https://b"), unix_socket="/x", tls_cert="/c", tls_key="/k")
    assert http_settings(made).cors_origins == ("https://a", "https://b")
    server = server_settings(made)
    assert (server.unix_socket, server.tls_cert, server.tls_key) == (Path("/x"), Path("/c"), Path("/k"))
