"""ROUGE of texts by rouge-score, and bootstrap intervals of its means over documents.

Letters: N documents, M scores.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ROUGE = ("rouge1", "rouge2", "rougeL")
SCORES = tuple(name + part for name in ROUGE for part in ("_precision", "_recall", ""))
"""What is kept of a document: of each ROUGE precision, recall and, by its plain name, F1."""


def rouge(answers: Sequence[str], references: Sequence[str], *, stemmer: bool = True) -> np.ndarray:
    """`SCORES` of each document, (N, 9) float64 in [0, 1]; 0 where a text has no words.

    Args:
        answers: what was written.
        references: what it is compared with.
        stemmer: Porter's, as papers on summaries use it.
    """
    from rouge_score.rouge_scorer import RougeScorer  # takes seconds, and brings nltk

    scorer = RougeScorer(ROUGE, use_stemmer=stemmer)
    rows = []
    for answer, reference in zip(answers, references, strict=True):
        scores = scorer.score(reference, answer)
        rows.append([scores[name] for name in ROUGE])  # each is precision, recall, F1
    return np.array(rows, np.float64).reshape(-1, len(SCORES))


def mean_intervals(scores: np.ndarray, *, resamples: int = 1000, seed: int = 0) -> np.ndarray:
    """95 % percentile intervals of means, from documents drawn with replacement.

    The draws are raw words of a counter-based generator, so the same scores give the same interval
    everywhere.

    Args:
        scores: (N, M).
        resamples: draws of N documents.
        seed: of the draws.

    Returns:
        (2, M): the lower and the upper ends.

    Reference: Koehn 2004, Statistical Significance Tests for Machine Translation Evaluation.
    """
    words = np.random.Philox(seed)
    count = len(scores)
    means = [scores[words.random_raw(count) % np.uint64(count)].mean(0) for _ in range(resamples)]
    return np.percentile(means, (2.5, 97.5), axis=0)
