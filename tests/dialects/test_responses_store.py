"""The store of responses: bounded, the oldest going first."""

from __future__ import annotations

import pytest

from tensorfold.ir import Message, Text
from tensorfold_dialect_openai.responses_store import (
    MAX_BYTES,
    MAX_RESPONSES,
    Conversation,
    ResponseStore,
    StoredResponse,
)


def response(id: str, size: int = 10) -> StoredResponse:
    return StoredResponse(id, b"x" * size, (), Conversation())


@pytest.mark.requirement("T-344")
def test_the_newest_responses_are_kept() -> None:
    """At most 1,024 responses and 256 MiB; the oldest go first."""
    assert (MAX_RESPONSES, MAX_BYTES) == (1024, 256 * 2**20)
    store = ResponseStore()
    for number in range(MAX_RESPONSES + 3):
        store.put(response(f"r{number}"))
    assert [store.get(f"r{number}") is not None for number in range(5)] == [False, False, False, True, True]
    assert store.get(f"r{MAX_RESPONSES + 2}") is not None


@pytest.mark.requirement("T-344")
def test_their_bytes_are_bounded() -> None:
    """A large response lets several old ones go; one larger than everything is not kept itself."""
    store = ResponseStore(most_bytes=100)
    for id in "abc":
        store.put(response(id, 30))
    store.put(response("d", 70))
    assert [id for id in "abcd" if store.get(id)] == ["d"]
    store.put(response("e", 101))
    assert [id for id in "abcde" if store.get(id)] == ["d"]


def test_a_conversation_counts_and_shares_its_messages() -> None:
    first = Conversation().and_then((Message("user", (Text("x" * 1000),)),))
    second = first.and_then((Message("assistant", (Text("y" * 500),)),))
    assert first.bytes > 1000
    assert second.bytes > first.bytes + 500
    assert second.messages[0] is first.messages[0]
    store = ResponseStore(most_bytes=second.bytes + 10)
    store.put(StoredResponse("a", b"", (), second))
    assert store.get("a") is not None
    store.put(StoredResponse("b", b"", (), first))
    assert store.get("a") is None


def test_a_response_that_is_put_again_is_counted_once() -> None:
    store = ResponseStore(most_bytes=100)
    for _ in range(9):
        store.put(response("a", 60))
    store.put(response("b", 30))
    assert store.get("a") is not None
    assert store.remove("a")
    assert not store.remove("a")


@pytest.mark.requirement("T-348")
def test_a_new_store_knows_nothing() -> None:
    """A restart forgets every response: nothing is written anywhere."""
    ResponseStore().put(response("a"))
    assert ResponseStore().get("a") is None
