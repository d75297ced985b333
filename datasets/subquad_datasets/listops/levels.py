"""Trees held level by level: where each node's token stands, and what each expression is worth.

The nodes of a level stand in the order of their parents, and the children of one parent next to
each other. Letters: N trees, K nodes of a level, M operators among them, C children (the nodes of
the next level).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from subquad_datasets.listops.tokens import END_ID, FIRST_DIGIT, FIRST_OPERATOR, OPERATORS


@dataclass(frozen=True)
class Level:
    """All nodes of one depth.

    Attributes:
        trees: (K,) the tree that each belongs to, ascending.
        tokens: (K,) uint8 token ids: digits and operators.
        arguments: (M,) int64, children of each operator; at least 2.
    """

    trees: np.ndarray
    tokens: np.ndarray
    arguments: np.ndarray

    @cached_property
    def is_operator(self) -> np.ndarray:
        """(K,) bool."""
        return self.tokens >= FIRST_OPERATOR

    @cached_property
    def first_children(self) -> np.ndarray:
        """(M,) place in the next level of each operator's first child."""
        return np.cumsum(self.arguments) - self.arguments


def lay_out(levels: list[Level], lengths: np.ndarray) -> np.ndarray:
    """Tokens of all trees, one tree after the other, in the order in which an expression is
    written.

    Args:
        levels: from the roots down.
        lengths: (N,) tokens of each tree.

    Returns:
        (sum of lengths,) uint8.
    """
    written = np.empty(int(lengths.sum()), dtype=np.uint8)
    places = np.cumsum(lengths) - lengths
    for level, sizes, below in zip(
        levels, (all_sizes := _sizes(levels)), [*all_sizes[1:], None], strict=True
    ):
        written[places] = level.tokens
        operators = level.is_operator
        written[places[operators] + sizes[operators] - 1] = END_ID
        if below is not None:
            # tokens of the level's nodes that stand before each child
            before = np.cumsum(below) - below
            if len(level.arguments):
                start = places[operators] + 1 - before[level.first_children]
            else:
                start = places[:0]
            places = before + np.repeat(start, level.arguments)
    return written


def values(levels: list[Level]) -> np.ndarray:
    """What each tree is worth: (N,) uint8, 0..9."""
    below = np.zeros(0, dtype=np.uint8)
    for level in reversed(levels):
        worth = level.tokens - np.uint8(FIRST_DIGIT)
        if len(level.arguments):
            worth[level.is_operator] = apply_operators(level, below)
        below = worth
    return below


# The values of an operator's arguments are counted in ten fields of 6 bits, one for each digit.
_FIELD = 6
_ONES = np.uint64(sum(1 << (_FIELD * digit) for digit in range(10)))
_TOPS = np.uint64(32 * int(_ONES))
_COUNT_ONE = np.array([1 << (_FIELD * digit) for digit in range(10)], dtype=np.uint64)


def apply_operators(level: Level, below: np.ndarray) -> np.ndarray:
    """(M,) uint8 values of a level's operators, from the values (C,) of the next level.

    MIN, MAX and MED are the mean of two order statistics, rounded down, since MED is the integer
    part of the median.
    """
    count = level.arguments
    first = level.first_children
    operator = level.tokens[level.is_operator] - FIRST_OPERATOR
    histogram = np.add.reduceat(_COUNT_ONE[below], first)
    low = np.choose(operator, [0 * count, count - 1, (count - 1) // 2, 0 * count])
    high = np.choose(operator, [0 * count, count - 1, count // 2, 0 * count])
    middle = (order_statistic(histogram, low) + order_statistic(histogram, high)) // 2
    total = np.add.reduceat(below.astype(np.int64), first) % 10
    return np.where(operator == OPERATORS.index("[SM"), total, middle).astype(np.uint8)


def order_statistic(histogram: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """The `rank`-th smallest digit, from 0, of each histogram: how many digits v have at most
    `rank` values up to v.

    Args:
        histogram: (M,) uint64, 6 bits for each digit, at most 31 values in all.
        rank: (M,) int64, below the number of values.
    """
    up_to = histogram * _ONES  # a field now holds the sum of itself and those below it
    above = (
        up_to + (31 - rank).astype(np.uint64) * _ONES
    ) & _TOPS  # a field's top bit: more than `rank`
    return 10 - np.bitwise_count(above).astype(np.int64)


def _sizes(levels: list[Level]) -> list[np.ndarray]:
    """For each level (K,) int64: tokens of the expression below each node, itself and the end
    included.
    """
    sizes: list[np.ndarray] = []
    for level in reversed(levels):
        size = np.ones(len(level.tokens), dtype=np.int64)
        if len(level.arguments):
            size[level.is_operator] = 2 + np.add.reduceat(sizes[-1], level.first_children)
        sizes.append(size)
    return sizes[::-1]
