"""Lengths that FFTs are quick at."""

from __future__ import annotations


def fast_length(length: int) -> int:
    """The smallest even number of at least `length` with no prime factor above 5, which FFT
    libraries are quick at.

    A power of two may be nearly twice as long as needed; this wastes a few per cent. Plain
    arithmetic without a cache, which torch.compile can trace.
    """
    best = 1 << max(1, (length - 1).bit_length())
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            quotient = -(-length // odd)
            best = min(best, odd << max(1, (quotient - 1).bit_length()))
            odd *= 3
        fives *= 5
    return best
