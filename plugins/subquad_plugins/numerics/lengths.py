"""Lengths that FFTs are quick at."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1024)
def fast_length(length: int) -> int:
    """The smallest even number of at least `length` with no prime factor above 5, which FFT libraries are quick at.

    A power of two may be nearly twice as long as needed; this wastes a few per cent.
    """
    found = max(2, length)
    while not _is_smooth(found):
        found += 1
    return found


def _is_smooth(number: int) -> bool:
    if number % 2:
        return False
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
    return number == 1
