"""ListOps as plainly as it can be said: one tree at a time, nested lists, recursion. What the
fast code is held to.
"""

from __future__ import annotations

import random
import statistics

Tree = int | list
"""A digit, or [operator, argument, argument, ...]."""

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")


def draw_tree(source: random.Random, depth: int, max_depth: int, max_args: int) -> Tree:
    """A node at `depth`: above `max_depth` it is an operator with probability 1/4, otherwise a
    digit.
    """
    if depth == max_depth or source.random() > 0.25:
        return source.randrange(10)
    count = source.randint(2, max_args)
    arguments = [draw_tree(source, depth + 1, max_depth, max_args) for _ in range(count)]
    return [source.choice(OPERATORS), *arguments]


def length(tree: Tree) -> int:
    """Tokens: digits, operators and ends."""
    return 1 if isinstance(tree, int) else 2 + sum(length(argument) for argument in tree[1:])


def depth(tree: Tree) -> int:
    return 1 if isinstance(tree, int) else 1 + max(depth(argument) for argument in tree[1:])


def value(tree: Tree) -> int:
    """What a tree is worth; the median of an even number of values is the mean of the middle
    two, cut off.
    """
    if isinstance(tree, int):
        return tree
    arguments = [value(argument) for argument in tree[1:]]
    if tree[0] == "[MIN":
        return min(arguments)
    if tree[0] == "[MAX":
        return max(arguments)
    if tree[0] == "[MED":
        return int(statistics.median(arguments))
    if tree[0] == "[SM":
        return sum(arguments) % 10
    return arguments[{"[FIRST": 0, "[LAST": -1}[tree[0]]]


def parse(words: list[str]) -> Tree:
    """The tree of an expression's words, parentheses left out.

    Raises:
        ValueError: a list that is not closed, or words after the end.
    """
    tree, end = _parse(words, 0)
    if end != len(words):
        raise ValueError(f"words after the end: {words[end:]}")
    return tree


def parenthesised(tree: Tree) -> str:
    """The official form: a list is a chain of pairs, `( ( ( [MIN 1 ) 2 ) ] )`."""
    if isinstance(tree, int):
        return str(tree)
    text = tree[0]
    for argument in tree[1:]:
        text = f"( {text} {parenthesised(argument)} )"
    return f"( {text} ] )"


def _parse(words: list[str], place: int) -> tuple[Tree, int]:
    if words[place].isdigit():
        return int(words[place]), place + 1
    tree: list = [words[place]]
    place += 1
    while words[place] != "]":
        argument, place = _parse(words, place)
        tree.append(argument)
    return tree, place + 1
