"""What every observer has to pass: subclass `ObserverContract` in a test module and give it an observer.

from tensorfold.testing.observers import ObserverContract

class TestAcme(ObserverContract):
    @pytest.fixture
    def observer(self) -> Observer:
        return AcmeObserver()
"""

from __future__ import annotations

import inspect
import json

import pytest
from structlog.testing import capture_logs

from tensorfold.contracts.observe import Observer, Outcome
from tensorfold.errors import GenerationFailed, Rejected
from tensorfold.http.app import create_app
from tensorfold.ir import TextDelta, Timings, Usage
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.filters import some_requests
from tensorfold.testing.plain_dialect import PATH, plain_dialect
from tensorfold.testing.scripted_engine import ScriptedEngine, ScriptItem

__all__ = ["ObserverContract"]

OUTCOMES = (
    Outcome(200, "end", Usage(3, 5, cached_tokens=1), Timings(0.1, 0.2, 0.3), 0.7, 0.4),
    Outcome(200, "length", Usage(0, 0), Timings(), 0.0, None),
    Outcome(499, "abort", Usage(3, 1), Timings(), 0.1, 0.1),
    Outcome(499, "abort", None, None, 0.1, None),
    Outcome(500, "server_error", None, None, 0.1, None),
    Outcome(503, "overloaded_error", None, None, 0.0, None),
)
"""Every way in which a request may end."""


class ObserverContract:
    """Subclass it as `TestSomething` and give an `observer` fixture."""

    @pytest.fixture
    def observer(self) -> Observer:
        """A fresh observer."""
        raise NotImplementedError

    def test_it_is_told_plainly(self, observer: Observer) -> None:
        """`started` and `ended` are called on the event loop, and are no coroutines.

        Fix: make both plain functions; hand slow work to a thread of your own.
        """
        assert not inspect.iscoroutinefunction(observer.started)
        assert not inspect.iscoroutinefunction(observer.ended)

    def test_every_outcome_can_be_told(self, observer: Observer) -> None:
        """Replies, refusals, failures and clients that left: `usage`, `timings` and the first token may be None.

        Fix: look whether each is None before you use it.
        """
        for request in some_requests():
            for outcome in OUTCOMES:
                observer.started(request, "/v1/chat/completions")
                observer.ended(request, "/v1/chat/completions", outcome)

    def test_requests_may_overlap(self, observer: Observer) -> None:
        """Many start before the first one ends, and they end in any order.

        Fix: keep what you know of a request by its `id`, and not in one attribute.
        """
        requests = [request for number, request in enumerate(some_requests()) if not number % 3]
        for request in requests:
            observer.started(request, "/plain")
        for request in reversed(requests):
            observer.ended(request, "/plain", OUTCOMES[0])

    @pytest.mark.parametrize("how", ["answered", "streamed", "refused", "failed"])
    def test_over_http_it_raises_nothing(self, observer: Observer, how: str) -> None:
        """What an observer raises harms nobody, but is logged with every request.

        Fix: look at the claims above first.
        """
        items: dict[str, list[ScriptItem]] = {
            "answered": list(reply_events(["quokka"])),
            "streamed": list(reply_events(["quo", "kka"])),
            "refused": [Rejected("full", status=429)],
            "failed": [TextDelta(0, "x"), GenerationFailed("broken")],
        }
        engine = ScriptedEngine(MODEL, lambda request: items[how])
        app = create_app(engine=engine, model=MODEL, dialects=[plain_dialect()], observers=[observer])
        try:
            with capture_logs() as logs:
                body = json.dumps({"prompt": "hello", "stream": how == "streamed"}).encode()
                answered = ask(app, "POST", PATH, body=body)
        finally:
            app.close()
        assert answered.status == {"refused": 429, "failed": 500}.get(how, 200)
        assert not [each for each in logs if each["log_level"] in ("error", "critical")]
