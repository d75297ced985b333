"""Values of expressions: the level-by-level evaluator against the recursive one."""

from __future__ import annotations

import lzma
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_listops import OPERATORS, Tree, depth, length, parenthesised, parse, value

from subquad_datasets.listops.levels import Level, lay_out, values
from subquad_datasets.listops.tokens import FIRST_DIGIT, FIRST_OPERATOR, decode, encode
from subquad_datasets.listops.trees import Shape, draw_block


def levels_of(trees: list[Tree]) -> list[Level]:
    """Nested lists as levels, without the code that draws them."""
    levels, nodes = [], list(enumerate(trees))
    while nodes:
        ids = [
            FIRST_DIGIT + node
            if isinstance(node, int)
            else FIRST_OPERATOR + OPERATORS.index(node[0])
            for _, node in nodes
        ]
        inner = [(tree, node) for tree, node in nodes if isinstance(node, list)]
        levels.append(
            Level(
                np.array([tree for tree, _ in nodes]),
                np.array(ids, dtype=np.uint8),
                np.array([len(node) - 1 for _, node in inner], dtype=np.int64),
            )
        )
        nodes = [(tree, argument) for tree, node in inner for argument in node[1:]]
    return levels


digits = st.integers(0, 9)
some_trees = st.recursive(
    digits,
    lambda inner: st.builds(
        lambda op, args: [op, *args], st.sampled_from(OPERATORS), st.lists(inner, min_size=2)
    ),
    max_leaves=31,
)


@given(st.lists(some_trees, min_size=1, max_size=4))
def test_any_trees_are_laid_out_and_valued_as_by_recursion(trees):
    levels = levels_of(trees)
    lengths = np.array([length(tree) for tree in trees])
    written = lay_out(levels, lengths).tobytes()
    assert written == b"".join(encode(parenthesised(tree).encode()) for tree in trees)
    assert values(levels).tolist() == [value(tree) for tree in trees]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        ("( ( ( [MED 3 ) 6 ) ] )", 4),  # 4.5 is cut off
        ("( ( ( [MED 0 ) 1 ) ] )", 0),
        ("( ( ( ( [SM 9 ) 9 ) ( ( ( [MAX 1 ) 8 ) ] ) ) ] )", 6),
        ("( ( ( ( ( [MIN 4 ) 2 ) 9 ) 2 ) ] )", 2),
    ],
)
def test_values_by_hand(text, expected):
    tree = parse(decode(encode(text.encode())).split())
    assert value(tree) == values(levels_of([tree])).tolist()[0] == expected


def test_every_label_of_generated_blocks_is_right():
    shape = Shape(seed=3, min_length=5, max_length=400, max_depth=10, max_args=10)
    for number in range(4):
        block = draw_block(shape, 0, number)
        ends = np.cumsum(block.lengths).tolist()
        trees = [
            parse(decode(block.tokens[a:b].tobytes()).split()) for a, b in pairwise([0, *ends])
        ]
        assert [value(tree) for tree in trees] == block.labels.tolist()
        assert max(depth(tree) for tree in trees) <= 10
        assert len(trees) > 100


@pytest.mark.extended
@pytest.mark.parametrize("name", ["d14", "d20", "d20a", "d20s"])
def test_the_independently_written_expressions(name):
    """Nangia and Bowman's test files: `label<TAB>expression`; two of the four use FIRST and LAST
    instead of MED and SM.

    Those with LRA's operators go through our encoder and evaluator, all of them through the plain
    one.
    """
    root = os.environ.get("SUBQUAD_REAL_DATA")
    if root is None:
        pytest.skip("SUBQUAD_REAL_DATA is not set: the folder with listops_nangia/")
    with lzma.open(
        Path(root) / "listops_nangia" / f"test_{name}.tsv.xz", "rt", encoding="ascii"
    ) as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    labels = [int(label) for label, _ in rows]
    trees = [parse([word for word in source.split() if word not in "()"]) for _, source in rows]
    assert len(rows) == 10_000
    assert [value(tree) for tree in trees] == labels
    if name in ("d20a", "d20s"):
        assert values(levels_of(trees)).tolist() == labels
        lengths = np.array([length(tree) for tree in trees])
        assert lay_out(levels_of(trees), lengths).tobytes() == b"".join(
            encode(row[1].encode()) for row in rows
        )
