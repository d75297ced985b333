"""Guesses that need no trained model: rows beside every result. N train and n evaluated samples,
K classes.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from subquad.data import Split

MAX_PRODUCTS = 20_000_000_000
"""N * n * numbers per series up to which nearest neighbours are searched: about a second on one
core.
"""

_DISTANCES = 2_000_000
_NUMBERS = 4_000_000
"""Held at once: distances, and numbers of either side in float64."""


@runtime_checkable
class Labelled(Protocol):
    """A split that knows its labels without reading its inputs."""

    @property
    def labels(self) -> np.ndarray: ...


def labels_of(split: Split) -> np.ndarray:
    """(n,) integer labels.

    Raises:
        TypeError: the split does not keep labels apart from inputs.
    """
    if not isinstance(split, Labelled):
        raise TypeError(f"{type(split).__name__} has no labels apart from its inputs")
    return split.labels


def majority(train: Split, split: Split) -> dict[str, float]:
    """Accuracy on `split` of always naming TRAIN's commonest class, the first of equally common
    ones.
    """
    commonest = np.bincount(labels_of(train)).argmax()
    return {"majority": float(np.mean(labels_of(split) == commonest))}


def nearest(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(n,) int64: for each of `rows` (n, F) the first of the nearest rows of `train` (N, F),
    Euclidean, in float64.

    |a - b|^2 = |a|^2 - 2 ab + |b|^2 in blocks of features, as matrix products: 50 times as fast as
    differences. |a|^2 is the same for all candidates and left out.
    """
    labels = np.empty(len(rows), dtype=np.int64)
    step = max(1, _DISTANCES // len(train))
    for start in range(0, len(rows), step):
        labels[start : start + step] = _scores(train, rows[start : start + step]).argmin(axis=1)
    return labels


def _scores(train: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(n, N) float64: squared distances less what all candidates of a row share."""
    scores = np.zeros((len(rows), len(train)))
    step = max(1, _NUMBERS // max(len(train), len(rows)))
    for start in range(0, train.shape[1], step):
        known, unknown = (
            part[:, start : start + step].astype(np.float64) for part in (train, rows)
        )
        scores += np.einsum("nf,nf->n", known, known) - 2.0 * (unknown @ known.T)
    return scores


def mean_values(train: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, float]]:
    """Errors on `labels` (n, V) of always naming TRAIN's mean of each value, as task regression
    counts them.

    NaN stands for a label that is not there. Where no value has two different labels, `r2` is left
    out.
    """
    errors = labels - np.nanmean(train, axis=0, dtype=np.float64)
    known = ~np.isnan(labels).all(axis=0)
    squared = np.nanmean(errors[:, known] ** 2, axis=0)
    spread = np.nanvar(labels[:, known], axis=0, dtype=np.float64)
    metrics = {
        "mae": np.nanmean(abs(errors[:, known]), axis=0).mean(),
        "rmse": np.sqrt(squared).mean(),
    }
    if (spread > 0).any():
        metrics["r2"] = (1 - squared[spread > 0] / spread[spread > 0]).mean()
    return {"mean": {name: float(value) for name, value in metrics.items()}}


def majority_labels(train: np.ndarray, labels: np.ndarray) -> dict[str, dict[str, float]]:
    """Scores on `labels` (n, C) of giving each class the answer that is commoner in TRAIN, as task
    multilabel counts.

    All samples have the same score, so a class's average precision is its share of them. NaN: a
    label is not known.
    """
    chosen = np.nanmean(train, axis=0) > 0.5
    known = ~np.isnan(labels)
    true = labels == 1
    right = (true & chosen).sum(0)
    named = (known & chosen).sum(0)
    either = named + true.sum(0)
    labelled = known.any(axis=1)
    exact = ~(known & (true != chosen)).any(axis=1)
    shares = true.sum(0)[true.any(0)] / known.sum(0)[true.any(0)]
    scores = {
        "mean_average_precision": shares.mean() if len(shares) else 0.0,
        "macro_f1": (2 * right[either > 0] / either[either > 0]).mean() if either.any() else 0.0,
        "micro_f1": 2 * right.sum() / max(1, either.sum()),
        "exact_match": exact[labelled].mean() if labelled.any() else 0.0,
    }
    return {"majority": {name: float(value) for name, value in scores.items()}}
