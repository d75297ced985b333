"""Lengths that FFTs are quick at."""

from __future__ import annotations

from subquad_plugins.numerics.lengths import fast_length


def is_quick(number: int) -> bool:
    if number % 2:
        return False
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
    return number == 1


def test_the_next_even_number_without_a_prime_factor_above_5():
    for length in (*range(1, 1200), 4097, 8191, 65_537):
        found = fast_length(length)
        assert found >= length
        assert is_quick(found)
        assert not any(is_quick(number) for number in range(max(2, length), found))
