"""Identities made of a request's tokens: sampling keys, the hash of a reply, the ids of its calls."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

__all__ = ["call_id", "choice_key", "sampling_key", "token_sha"]

_WORD = 0xFFFFFFFFFFFFFFFF


def _packed(ids: Sequence[int]) -> bytes:
    """Little-endian uint32, one after the other."""
    return np.asarray(ids, dtype="<u4").tobytes()


def sampling_key(seed: int | None, ids: Sequence[int], salt: int) -> int:
    """A request's key, an unsigned 64-bit integer: its seed, or else a hash of its prompt.

    Salt 0 leaves the prompt's key as it is; any other gives independent repeats of requests without a seed.
    """
    if seed is not None:
        return seed & _WORD
    salted = b"" if salt == 0 else f"salt {salt};".encode()
    return int.from_bytes(hashlib.sha256(salted + _packed(ids)).digest()[:8], "little")


def choice_key(key: int, choice: int) -> int:
    """The key of one choice: choice 0 has the request's own, so that `n` changes nothing for it."""
    if choice == 0:
        return key
    mixed = key.to_bytes(8, "little") + choice.to_bytes(8, "little")
    return int.from_bytes(hashlib.sha256(mixed).digest()[:8], "little")


def token_sha(ids: Sequence[int]) -> str:
    """SHA-256, in hex, over a reply's ids as little-endian uint32, the stopping token included."""
    return hashlib.sha256(_packed(ids)).hexdigest()


def call_id(prompt: Sequence[int], key: int, index: int) -> str:
    """The id of a reply's call: the same for a repeated request, another in the conversation's next turn.

    `key` is the choice's.
    """
    digest = hashlib.sha256(_packed(prompt) + key.to_bytes(8, "little") + index.to_bytes(4, "little"))
    return f"call_{digest.hexdigest()[:24]}"
