"""Prime numbers: the sizes of hash tables."""

from __future__ import annotations

import math

__all__ = ["primes_from"]


def primes_from(first: int, count: int) -> tuple[int, ...]:
    """The first `count` primes that are at least `first`."""
    found: list[int] = []
    candidate = max(first, 2)
    while len(found) < count:
        if _is_prime(candidate):
            found.append(candidate)
        candidate += 1
    return tuple(found)


def _is_prime(number: int) -> bool:
    if number < 4:
        return number >= 2
    return number % 2 != 0 and all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2))
