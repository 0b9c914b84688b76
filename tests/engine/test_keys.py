"""Sampling keys, reply hashes and call ids."""

from __future__ import annotations

import hashlib

import pytest

from tensorfold.engine.keys import call_id, choice_key, sampling_key, token_sha


@pytest.mark.requirement("T-094")
def test_a_seed_is_the_key() -> None:
    """`seed` is the sampling key, whatever the prompt and the salt are."""
    assert sampling_key(7, (1, 2), 0) == sampling_key(7, (3,), 5) == 7


def test_any_integer_can_be_a_seed() -> None:
    """Keys are 64 bits wide; seeds are taken modulo that."""
    assert sampling_key(-1, (1,), 0) == 2**64 - 1
    assert sampling_key(2**64 + 3, (1,), 0) == 3


@pytest.mark.requirement("T-095")
def test_without_a_seed_the_key_follows_from_the_prompt_and_the_salt() -> None:
    """The key is a function of the prompt's ids and the salt."""
    keys = {sampling_key(None, ids, salt) for ids in ((1, 2), (12,), (1, 2, 0)) for salt in (0, 1, 2)}
    assert len(keys) == 9
    assert sampling_key(None, (1, 2), 1) == sampling_key(None, (1, 2), 1)


@pytest.mark.requirement("T-294")
def test_salt_zero_leaves_a_prompts_key_as_it_is() -> None:
    """The key is then the first 8 bytes of SHA-256 over the ids as little-endian uint32."""
    packed = (5).to_bytes(4, "little") + (70000).to_bytes(4, "little")
    assert sampling_key(None, (5, 70000), 0) == int.from_bytes(hashlib.sha256(packed).digest()[:8], "little")


@pytest.mark.requirement("T-111")
def test_choices_have_keys_of_their_own_and_choice_zero_the_plain_one() -> None:
    """The choice index enters the key, and index 0 keeps the key of a request for one choice."""
    keys = [choice_key(99, choice) for choice in range(5)]
    assert keys[0] == 99
    assert len(set(keys)) == 5


def test_a_reply_hash_is_sha256_over_little_endian_words() -> None:
    """Anyone can compute it from the ids."""
    assert token_sha((1, 258)) == hashlib.sha256(b"\x01\0\0\0\x02\x01\0\0").hexdigest()
    assert token_sha(()) == hashlib.sha256(b"").hexdigest()


def test_call_ids_repeat_with_the_request_and_differ_between_turns() -> None:
    """Two turns of a conversation with one seed never share an id."""
    assert call_id((1, 2), 7, 0) == call_id((1, 2), 7, 0)
    assert len({call_id((1, 2), 7, 0), call_id((1, 2), 7, 1), call_id((1, 2, 3), 7, 0), call_id((1, 2), 8, 0)}) == 4
