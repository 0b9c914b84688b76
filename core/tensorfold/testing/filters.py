"""What every request filter has to pass: subclass `RequestFilterContract` in a test module and give it a filter.

from tensorfold.testing.filters import RequestFilterContract

class TestAcme(RequestFilterContract):
    @pytest.fixture
    def filter(self) -> RequestFilter:
        return AcmeFilter()
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator

import msgspec
import pytest

from tensorfold.contracts.policy import RequestFilter
from tensorfold.errors import RequestError
from tensorfold.http.app import create_app
from tensorfold.ir import (
    Chat,
    Limits,
    Message,
    Prompt,
    Request,
    Sampling,
    Text,
    TextPrompt,
    TokensPrompt,
)
from tensorfold.testing.asgi import ask
from tensorfold.testing.dialects import MODEL, reply_events
from tensorfold.testing.plain_dialect import PATH, plain_dialect
from tensorfold.testing.scripted_engine import ScriptedEngine

__all__ = ["RequestFilterContract", "some_requests"]


def some_requests() -> Iterator[Request]:
    """Requests of many kinds."""
    chat = Chat((Message("system", (Text("be brief"),)), Message("user", (Text("Write a title"),))))
    prompts: tuple[Prompt, ...] = (chat, TextPrompt("hello"), TextPrompt(""), TokensPrompt((1, 2, 3)))
    for number, prompt in enumerate(prompts):
        for principal in (None, "alice"):
            plain = Request(id=f"r{number}", prompt=prompt, principal=principal)
            yield plain
            yield msgspec.structs.replace(plain, choices=3, sampling=Sampling(temperature=1.0), logprobs=2)
            yield msgspec.structs.replace(plain, priority="background", limits=Limits(max_tokens=1_000_000))


class RequestFilterContract:
    """Subclass it as `TestSomething` and give a `filter` fixture."""

    @pytest.fixture
    def filter(self) -> RequestFilter:
        """A fresh filter."""
        raise NotImplementedError

    def test_it_has_a_name(self, filter: RequestFilter) -> None:
        """Filters run in the order of their names.

        Fix: give the filter a `name`.
        """
        assert filter.name

    def test_it_answers_at_once(self, filter: RequestFilter) -> None:
        """`apply` runs on the event loop, and is no coroutine.

        Fix: make `apply` a plain function that does no I/O.
        """
        assert not inspect.iscoroutinefunction(filter.apply)

    def test_a_request_is_passed_on_or_refused(self, filter: RequestFilter) -> None:
        """It returns a `Request`, or raises an error that has a status and words for the caller.

        Fix: return the request, or a changed copy; refuse by raising an error of `tensorfold.errors.RequestError`'s tree.
        """
        for request in some_requests():
            passed = _applied(filter, request)
            if isinstance(passed, RequestError):
                assert 400 <= passed.status < 600
                assert passed.message
            else:
                assert isinstance(passed, Request)

    def test_who_asks_and_what_for_stay_the_same(self, filter: RequestFilter) -> None:
        """The id, the principal and the number of choices are the front's, which has counted on them.

        Fix: change a request with `msgspec.structs.replace`, and leave `id`, `principal` and `choices` as they are.
        """
        for request in some_requests():
            passed = _applied(filter, request)
            if isinstance(passed, RequestError):
                continue
            assert (passed.id, passed.principal, passed.choices) == (request.id, request.principal, request.choices)

    def test_a_request_over_http_is_answered_or_refused(self, filter: RequestFilter) -> None:
        """What it raises becomes an error answer with its status, never a 500.

        Fix: look at the claims above first.
        """
        engine = ScriptedEngine(MODEL, lambda request: reply_events(["quokka"], request.choices))
        app = create_app(engine=engine, model=MODEL, dialects=[plain_dialect()], filters=[filter])
        try:
            answered = ask(app, "POST", PATH, body=json.dumps({"prompt": "hello"}).encode())
        finally:
            app.close()
        assert answered.status == 200 or 400 <= answered.status < 500 or answered.status == 503, answered.body


def _applied(filter: RequestFilter, request: Request) -> Request | RequestError:
    """What it makes of a request, or the error with which it refuses it."""
    try:
        return filter.apply(request)
    except RequestError as error:
        return error
