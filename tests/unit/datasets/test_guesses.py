"""Guesses without a model: the commonest class, and nearest neighbours against the plain
definition.
"""

from __future__ import annotations

import numpy as np
import pytest

from subquad.data import ArrayBatch, ArraySplit, Split
from subquad_datasets import guesses
from subquad_datasets.guesses import labels_of, majority, nearest


def split_of(*labels: int) -> ArraySplit:
    return ArraySplit({"labels": np.array(labels)})


def test_the_commonest_class_is_that_of_train():
    assert majority(split_of(2, 0, 2), split_of(0, 0, 0, 2)) == {"majority": 0.25}
    assert majority(split_of(1, 0), split_of(0, 0, 1)) == {"majority": pytest.approx(2 / 3)}


def test_a_split_without_labels_of_its_own_is_refused():
    class Odd(Split):
        def __len__(self) -> int:
            return 1

        def fetch(self, indices: np.ndarray, *, epoch: int, seed: int) -> ArrayBatch:
            return {"labels": indices}

    with pytest.raises(TypeError, match="Odd has no labels apart from its inputs"):
        labels_of(Odd())


@pytest.mark.parametrize("held", [1, 20, 10**6])
def test_nearest_is_the_plain_definition_whatever_is_held_at_once(held, monkeypatch):
    monkeypatch.setattr(guesses, "_DISTANCES", held)
    monkeypatch.setattr(guesses, "_NUMBERS", held)
    random = np.random.default_rng(0)
    train, rows = (
        random.normal(5.0, 1.0, (11, 6)).astype(np.float32),
        random.normal(5.0, 1.0, (7, 6)),
    )
    gaps = train[None].astype(np.float64) - rows[:, None]
    assert nearest(train, rows).tolist() == (gaps**2).sum(-1).argmin(1).tolist()


def test_of_equally_near_rows_the_first_is_taken():
    assert nearest(np.array([[4.0], [1.0], [3.0], [1.0]]), np.array([[2.0], [0.0]])).tolist() == [
        1,
        1,
    ]
