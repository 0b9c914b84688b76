"""What every auth source has to pass: subclass `AuthSourceContract` in a test module and give it a source.

from tensorfold.testing.auth import AuthSourceContract

class TestAcme(AuthSourceContract):
    accepted = {"open sesame": "acme"}

    @pytest.fixture
    def source(self) -> AuthSource:
        return AcmeSource("open sesame")
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import ClassVar

import pytest

from tensorfold.contracts.auth import AuthSource, Credentials, Principal
from tensorfold.http.app import create_app
from tensorfold.http.guard import read_credentials
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL
from tensorfold.testing.scripted_engine import ScriptedEngine

__all__ = ["AuthSourceContract"]

_JUNK = (
    "",
    " ",
    "\x00",
    "nope",
    "ключ",
    "\udcff\udc80",
    "a" * 100_000,
    "Bearer x",
    "'; DROP TABLE keys; --",
    "../../etc/passwd",
)


class AuthSourceContract:
    """Subclass it as `TestSomething`, set the accepted keys and give a `source` fixture."""

    accepted: ClassVar[Mapping[str, str]]
    """Keys that the source accepts, each with its label; one at least, and the source guards."""

    @pytest.fixture
    def source(self) -> AuthSource:
        """A fresh source."""
        raise NotImplementedError

    def test_it_has_a_name_and_guards(self, source: AuthSource) -> None:
        """With keys configured it asks for one.

        Fix: set `name` and `description`, and let `guards` be true once there is a key.
        """
        assert source.name
        assert source.description
        assert source.guards

    def test_an_accepted_key_is_recognized_however_it_is_sent(self, source: AuthSource) -> None:
        """As a bearer, as `x-api-key`, and as both at once.

        Fix: in `identify`, try every key of `credentials.offered`, and return a `Principal` with the key's label.
        """
        for key, label in self.accepted.items():
            for credentials in (Credentials(key, None), Credentials(None, key), Credentials(key, key)):
                principal = source.identify(credentials)
                assert isinstance(principal, Principal)
                assert principal.label == label

    def test_labels_may_stand_in_logs(self, source: AuthSource) -> None:
        """At most 64 letters, digits, dots, underscores or hyphens, and never the key itself.

        Fix: name callers by a label of their own.
        """
        for key, label in self.accepted.items():
            assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", label)
            assert key not in label

    @pytest.mark.parametrize("junk", _JUNK, ids=range(len(_JUNK)))
    def test_junk_is_nobody_and_raises_nothing(self, source: AuthSource, junk: str) -> None:
        """Headers hold whatever a stranger sends: blanks, other scripts, half characters, 100,000 letters.

        Fix: compare bytes: `offered.encode("utf-8", "surrogateescape")`, hashed, with `hmac.compare_digest`.
        """
        assert source.identify(Credentials(junk, None)) is None
        assert source.identify(Credentials(None, junk)) is None
        assert source.identify(Credentials(junk, junk)) is None

    def test_no_credential_is_nobody(self, source: AuthSource) -> None:
        """A request without a key is not recognized.

        Fix: return None when `credentials.offered` is empty.
        """
        assert source.identify(Credentials(None, None)) is None

    def test_a_key_that_is_nearly_right_is_nobody(self, source: AuthSource) -> None:
        """A letter less or more, another case, a blank before it.

        Fix: compare whole keys, and change nothing about what is offered.
        """
        for key in self.accepted:
            for near in (key[:-1], key[1:], key + "x", key.swapcase(), f" {key}", f"{key}\n"):
                if near not in self.accepted:
                    assert source.identify(Credentials(near, None)) is None

    def test_looking_again_raises_nothing_and_changes_nothing(self, source: AuthSource) -> None:
        """`refresh` comes about once a second, `reload` with a signal.

        Fix: catch what reading raises, and keep the keys when nothing has changed.
        """
        source.refresh()
        source.reload()
        source.refresh()
        for key in self.accepted:
            assert source.identify(Credentials(key, None)) is not None

    def test_identify_is_synchronous(self, source: AuthSource) -> None:
        """It is asked on the event loop, for every request.

        Fix: make `identify` a plain function, and do the I/O in `refresh`.
        """
        assert not inspect.iscoroutinefunction(source.identify)

    def test_no_key_can_be_read_off_the_source(self, source: AuthSource) -> None:
        """Neither its repr nor its description shows one.

        Fix: keep digests, and no dataclass repr.
        """
        for key in self.accepted:
            assert key not in repr(source)
            assert key not in source.description

    def test_over_http_the_right_key_passes_and_others_get_a_401(self, source: AuthSource) -> None:
        """In a real application.

        Fix: look at the claims above first.
        """
        app = create_app(engine=ScriptedEngine(MODEL, lambda request: ()), model=MODEL, dialects=[], auth=[source])
        for headers in (
            {},
            {"authorization": "Bearer nope"},
            {"x-api-key": "nope"},
            {"authorization": "Basic bm9wZQ=="},
        ):
            answered = ask(app, "GET", "/v1/models", headers=headers)
            assert answered.status == 401
            assert answered.headers["www-authenticate"] == "Bearer"
        for key in self.accepted:
            for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
                assert read_credentials([(name.encode(), value.encode()) for name, value in headers.items()]).offered
                assert ask(app, "GET", "/v1/models", headers=headers).status == 200
