"""What can be had without composing anything: rows that every table of ListOps results needs.

At official lengths the value depends so much on the outermost operator that naming it alone scores
about 37 %.
"""

from __future__ import annotations

import numpy as np

from subquad_datasets.packed import PackedSplit

_TOKENS = 16
_VALUES = 10


def guesses(train: PackedSplit, split: PackedSplit) -> dict[str, float]:
    """Accuracies on `split` of the two best guesses that TRAIN teaches.

    Args:
        train: where the guesses are learned.
        split: where they are scored.

    Returns:
        `majority`, always the commonest value; `root_operator`, the commonest one given the
        outermost operator.
    """
    table = counts_by_root(train)
    labels = split.labels
    guessed = table.argmax(axis=1)[roots(split)]
    return {
        "majority": float(np.mean(labels == table.sum(axis=0).argmax())),
        "root_operator": float(np.mean(labels == guessed)),
    }


def counts_by_root(split: PackedSplit) -> np.ndarray:
    """(16, 10) int64: how often each value goes with each first token."""
    table = np.zeros((_TOKENS, _VALUES), dtype=np.int64)
    np.add.at(table, (roots(split), split.labels), 1)
    return table


def roots(split: PackedSplit) -> np.ndarray:
    """(n,) token id of each sequence's outermost operator, its first token."""
    return split.column.tokens[split.starts].astype(np.int64)
