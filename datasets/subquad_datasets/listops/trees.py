"""Random ListOps trees, a whole block of them at once: level by level, in integers only.

The official generator grows one tree at a time, depth first: a node above `max_depth` is an
operator with probability 1/4, else a digit; an operator is one of four, with 2 .. `max_args`
arguments; all choices are independent and uniform. A tree is kept when its number of tokens lies
strictly between two limits. Since the choices are independent, the order in which nodes draw them
does not matter: here all nodes of one depth of many trees draw together. A node adds to its tree's
length and never takes away, so a tree is given up as soon as it is too long, which changes no tree
that is kept.

Every choice is made from one 64-bit word of Philox, a counter-based generator whose words NumPy
keeps over versions: a block is a function of (seed, stream, number) alone, whoever draws it and on
whatever CPU. Choices among n are floor(n u / 2^56), u being 56 bits: their probabilities are within
2^-52 of 1/n, which is as near as the official generator comes to 1/4.

Letters: T trees tried, N kept, K nodes of a level, M operators among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from subquad_datasets.listops.levels import Level, lay_out, values
from subquad_datasets.listops.tokens import FIRST_DIGIT, FIRST_OPERATOR

TRIES = 1024
"""Trees tried in a block; another number is another data set."""

_U = np.uint64


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What trees are drawn and kept.

    Attributes:
        seed, min_length, max_length, max_depth, max_args: as in `Config`.
    """

    seed: int
    min_length: int
    max_length: int
    max_depth: int
    max_args: int


@dataclass(frozen=True)
class Block:
    """Expressions, one after the other.

    Attributes:
        tokens: (sum of lengths,) uint8 token ids.
        lengths: (N,) int64.
        labels: (N,) uint8, values of the expressions.
    """

    tokens: np.ndarray
    lengths: np.ndarray
    labels: np.ndarray


def draw_block(shape: Shape, stream: int, number: int) -> Block:
    """The kept trees among the `TRIES` of one block.

    Args:
        shape: what is drawn.
        stream: independent streams of the same seed.
        number: of the block in its stream.
    """
    levels, lengths = _grow(
        shape, np.random.Philox(key=_words(shape.seed, stream), counter=_words(0, number, 0, 0))
    )
    kept = (lengths > shape.min_length) & (lengths < shape.max_length)
    levels = [_only(level, kept) for level in levels]
    return Block(lay_out(levels, lengths[kept]), lengths[kept], values(levels))


def _grow(shape: Shape, source: np.random.Philox) -> tuple[list[Level], np.ndarray]:
    """Levels of all trees, and their lengths (T,), which are at least `max_length` where a tree was
    given up.

    A tree's length so far counts every node that is drawn or to be drawn, and an end for each
    operator.
    """
    lengths = np.ones(TRIES, dtype=np.int64)
    trees = np.arange(TRIES)
    levels = []
    for depth in range(1, shape.max_depth + 1):
        level = _draw_level(shape, source, trees, leaves=depth == shape.max_depth)
        levels.append(level)
        owners = trees[level.is_operator]
        trees = np.repeat(owners, level.arguments)
        lengths += np.bincount(trees, minlength=TRIES) + np.bincount(owners, minlength=TRIES)
        going_on = lengths < shape.max_length
        if depth == shape.max_depth - 1:  # the next nodes are digits: lengths are final
            going_on &= lengths > shape.min_length
        trees = trees[going_on[trees]]
        if not len(trees):
            break
    return levels, lengths


def _draw_level(
    shape: Shape, source: np.random.Philox, trees: np.ndarray, *, leaves: bool
) -> Level:
    """Draw the nodes that stand at one depth, each belonging to the given tree."""
    words = source.random_raw(len(trees))
    tokens = (_choice(words, 10) + FIRST_DIGIT).astype(np.uint8)
    if leaves:
        operators = np.zeros(0, dtype=np.int64)
    else:
        operators = np.flatnonzero((words & _U(3)) == 0)
    drawn = words[operators]
    tokens[operators] = ((drawn >> _U(2)) & _U(3)).astype(np.uint8) + FIRST_OPERATOR
    arguments = 2 + _choice(drawn, shape.max_args - 1)
    return Level(trees, tokens, arguments)


def _choice(words: np.ndarray, count: int) -> np.ndarray:
    """Uniform in 0 .. count-1, from the upper 56 bits of each word; `count` is at most 256."""
    return (((words >> _U(8)) * _U(count)) >> _U(56)).astype(np.int64)


def _only(level: Level, kept: np.ndarray) -> Level:
    mine = kept[level.trees]
    return Level(level.trees[mine], level.tokens[mine], level.arguments[mine[level.is_operator]])


def _words(*words: int) -> np.ndarray:
    return np.array(words, dtype=np.uint64)
