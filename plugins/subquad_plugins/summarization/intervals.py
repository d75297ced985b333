"""Bootstrap intervals of the means of scores over documents.

Letters: N documents, M scores.
"""

from __future__ import annotations

import numpy as np


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
