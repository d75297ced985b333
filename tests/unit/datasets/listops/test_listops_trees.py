"""Drawing trees: exactly the official law, the same bits everywhere. Seeds are fixed, so no test
fails by chance.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
from numpy._core import _multiarray_umath as umath  # pyright: ignore[reportPrivateImportUsage]
from plain_listops import OPERATORS, Tree, depth, draw_tree, length, parse, value
from scipy.stats import chi2_contingency, chisquare

from subquad_datasets.listops.tokens import END_ID, FIRST_OPERATOR, decode
from subquad_datasets.listops.trees import TRIES, Block, Shape, draw_block

OFFICIAL = Shape(seed=0, min_length=500, max_length=2000, max_depth=10, max_args=10)
SMALL = Shape(seed=1, min_length=10, max_length=120, max_depth=6, max_args=6)
DIGEST = "261e743f05d16307917a7fb6f2e9eef165d480f41c747e23918f97c0ce6eec6b"

UNLIKELY = 1e-3
"""A p-value below this is a failure; with fixed seeds it either never happens or always."""


def draw(shape: Shape, count: int, stream: int = 0) -> Block:
    drawn = [draw_block(shape, stream, number) for number in range(count)]
    return Block(
        *(
            np.concatenate([getattr(tree, part) for tree in drawn])
            for part in ("tokens", "lengths", "labels")
        )
    )


def trees_of(block: Block) -> list[Tree]:
    ends = np.cumsum(block.lengths).tolist()
    return [parse(decode(block.tokens[a:b].tobytes()).split()) for a, b in pairwise([0, *ends])]


def digest(block: Block) -> str:
    parts = (block.tokens, block.lengths.astype("<i8"), block.labels)
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def length_law(shape: Shape) -> np.ndarray:
    """Probability of each length below `max_length`, not conditioned on being kept: sums of
    independent lengths.
    """
    size = shape.max_length
    law = np.zeros(size)
    law[1] = 1.0
    for _ in range(shape.max_depth - 1):
        power, mixed = law, np.zeros(size)
        for _ in range(2, shape.max_args + 1):
            power = np.convolve(power, law)[:size]
            mixed += power / (shape.max_args - 1)
        law = np.concatenate([[0, 0], mixed[:-2]]) / 4
        law[1] += 3 / 4
    return law


def test_lengths_and_the_share_of_kept_trees_follow_the_exact_law():
    blocks = 100
    lengths = draw(OFFICIAL, blocks).lengths
    law = length_law(OFFICIAL)[501:]
    kept = law.sum()
    assert 1 / kept == pytest.approx(12.084, abs=0.001)
    assert abs(len(lengths) - kept * blocks * TRIES) < 3.5 * np.sqrt(
        kept * (1 - kept) * blocks * TRIES
    )
    edges = np.searchsorted(law.cumsum() / kept, np.linspace(0, 1, 31)[1:-1])
    bins = np.concatenate([[0], edges, [len(law)]])
    expected = np.add.reduceat(law, bins[:-1]) / kept * len(lengths)
    assert chisquare(np.histogram(lengths - 501, bins)[0], expected).pvalue > UNLIKELY


@pytest.mark.ci
def test_what_the_exact_law_does_not_say_agrees_with_drawing_one_by_one():
    source = random.Random(7)
    plain: list[Tree] = []
    while len(plain) < 4000:
        tree = draw_tree(source, 1, SMALL.max_depth, SMALL.max_args)
        if SMALL.min_length < length(tree) < SMALL.max_length:
            plain.append(tree)
    ours = trees_of(draw(SMALL, 80))
    assert len(ours) > 4000
    for fact in (depth, value, root, root_and_value, widths, operators, leaves):
        assert same_law(facts(fact, ours), facts(fact, plain)) > UNLIKELY, fact.__name__


def root(tree: Tree) -> Iterable[object]:
    return [tree[0]] if isinstance(tree, list) else ["digit"]


def root_and_value(tree: Tree) -> Iterable[object]:
    return [(*root(tree), value(tree))]


def nodes(tree: Tree) -> Iterable[list]:
    if isinstance(tree, list):
        yield tree
        for argument in tree[1:]:
            yield from nodes(argument)


def widths(tree: Tree) -> Iterable[object]:
    """Arguments of the first operator below the root, or none: one per tree, since samples must
    be independent.
    """
    return [next((len(node) - 1 for node in [*nodes(tree)][1:]), 0)]


def operators(tree: Tree) -> Iterable[object]:
    return [next((node[0] for node in [*nodes(tree)][1:]), "none")]


def leaves(tree: Tree) -> Iterable[object]:
    first = tree
    while isinstance(first, list):
        first = first[-1]
    return [first]


def facts(fact, trees: list[Tree]) -> list[object]:
    found = [fact(tree) for tree in trees]
    return found if not isinstance(found[0], list) else [tree for many in found for tree in many]


def same_law(first: list[object], second: list[object]) -> float:
    """p-value of two samples being of one law; rare outcomes are taken together."""
    names = sorted({*first, *second}, key=str)
    table = np.array([[sample.count(name) for name in names] for sample in (first, second)])
    common = table.sum(0) >= 20
    rare = table[:, ~common].sum(1, keepdims=True)
    table = np.concatenate([table[:, common], rare[:, : int(rare.sum() >= 20)]], axis=1)
    return float(chi2_contingency(table).pvalue)


def test_digits_operators_and_their_arguments_are_uniform():
    block = draw(Shape(seed=2, min_length=0, max_length=500, max_depth=3, max_args=9), 40)
    roots = block.tokens[np.cumsum(block.lengths) - block.lengths]
    counts = np.bincount(roots, minlength=END_ID)
    assert chisquare(counts[1:11]).pvalue > UNLIKELY
    assert chisquare(counts[FIRST_OPERATOR:END_ID]).pvalue > UNLIKELY
    assert abs(counts[FIRST_OPERATOR:].sum() / len(roots) - 0.25) < 4 * np.sqrt(
        0.25 * 0.75 / len(roots)
    )
    widths = np.array([len(tree) - 1 for tree in trees_of(block) if isinstance(tree, list)])
    assert chisquare(np.bincount(widths, minlength=10)[2:]).pvalue > UNLIKELY


def test_limits_are_kept():
    trees = trees_of(draw(SMALL, 20))
    lengths = [length(tree) for tree in trees]
    assert (min(lengths), max(lengths)) == (11, 119)
    assert max(depth(tree) for tree in trees) == SMALL.max_depth
    widths = {len(node) - 1 for tree in trees for node in nodes(tree)}
    assert widths == set(range(2, SMALL.max_args + 1))
    assert {node[0] for tree in trees for node in nodes(tree)} == set(OPERATORS)


def test_giving_up_long_trees_early_changes_no_tree_that_is_kept():
    """A block draws fewer words where it gives trees up, so compare laws: lengths below a limit,
    limit or not.
    """
    wide = draw(
        Shape(seed=5, min_length=20, max_length=1000, max_depth=7, max_args=10), 150
    ).lengths
    tight = draw(Shape(seed=6, min_length=20, max_length=60, max_depth=7, max_args=10), 150).lengths
    assert same_law(wide[wide < 60].tolist(), tight.tolist()) > UNLIKELY


def test_a_block_depends_on_seed_stream_and_number():
    blocks = [
        digest(
            draw_block(
                Shape(seed=seed, min_length=20, max_length=60, max_depth=5, max_args=5),
                stream,
                number,
            )
        )
        for seed, stream, number in [(0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    ]
    assert blocks[0] == blocks[1]
    assert len(set(blocks)) == 4


def test_the_bits_are_pinned():
    """Another digest is another data set: raise `VERSION` in dataset.py."""
    assert digest(draw_block(OFFICIAL, 0, 0)) == DIGEST


@pytest.mark.ci
def test_the_bits_do_not_depend_on_the_cpu():
    optional = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__.get(name)]
    if not optional:
        pytest.skip("NumPy uses no optional CPU features here")
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from numpy._core import _multiarray_umath as umath\n"
        "assert not any(umath.__cpu_features__[name] for name in umath.__cpu_dispatch__)\n"
        "from subquad_datasets.listops.trees import Shape, draw_block\n"
        "import hashlib\n"
        "block = draw_block(Shape(seed=0, min_length=500, max_length=2000, "
        "max_depth=10, max_args=10), 0, 0)\n"
        "parts = (block.tokens, block.lengths.astype('<i8'), block.labels)\n"
        "print(hashlib.sha256(b''.join(part.tobytes() for part in parts)).hexdigest())\n"
    )
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(optional)}
    run = subprocess.run(
        [sys.executable, "-c", code, *sys.path], env=environment, capture_output=True, text=True
    )
    assert run.stdout.strip() == digest(draw_block(OFFICIAL, 0, 0)), run.stderr
