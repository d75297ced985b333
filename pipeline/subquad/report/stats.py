"""Differences between two mixers, with their uncertainty: hierarchical bootstrap, Welch's test, Holm's correction.

Letters: S seeds, N test samples, P distinct sample patterns, R resamples. Method and limits: docs/reference/report.md.
References: Owen, "The pigeonhole bootstrap", 2007 (two crossed factors); Rao and Wu, "Resampling inference with complex
survey data", 1988 (S - 1 draws of S seeds); Agresti and Min, 2005 (one more discordant pair); Satterthwaite, 1946;
Holm, 1979.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

RESAMPLES = 10_000
_UPPER = 0.975
"""Upper end of a two-sided 95 % interval."""
_CHUNK = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A difference, first minus second, in units of the metric.

    Attributes:
        low: lower end of the 95 % interval.
        high: upper end.
        p_value: two-sided, of no difference; below 0.05 exactly where the interval excludes 0.
        freedom: degrees of freedom of the t quantile behind both.
    """

    difference: float
    low: float
    high: float
    p_value: float
    freedom: float


def paired_bootstrap(first: np.ndarray, second: np.ndarray, *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Difference of two accuracies, over test samples and seeds.

    Args:
        first: (S, N) correctness per seed and test sample, 0 or 1.
        second: (S, N), the same seeds and samples.
        resamples: R.
        seed: of the resampling.

    Returns:
        the mean difference and its interval: bootstrap standard error times a t quantile.

    Raises:
        ValueError: the shapes differ, or there are fewer than two samples.
    """
    if first.shape != second.shape or first.ndim != 2 or first.shape[1] < 2:
        raise ValueError(f"need two equal (S, N) arrays with N >= 2, got {first.shape} and {second.shape}")
    gaps = first.astype(np.float64) - second.astype(np.float64)
    floor = 1.0 / gaps.shape[1] ** 2
    # Satterthwaite's degrees of freedom, but no more than two groups of S seeds have: without that cap a pair of seeds
    # that happen to agree passes for certainty, and two seeds then cover 88 %, not 95 %.
    most = 2.0 * (len(gaps) - 1) if len(gaps) > 1 else np.inf
    freedom = min(_freedom(_mean_squares(gaps, floor)), most)
    draws = _bootstrap_means(gaps, resamples=resamples, seed=seed)
    return _interval(float(gaps.mean()), float(draws.var()) + floor, freedom)


def _bootstrap_means(gaps: np.ndarray, *, resamples: int, seed: int) -> np.ndarray:
    """Means of resampled differences: seeds (S - 1 of S) and samples (N of N) are drawn at once, crossed.

    Samples with the same pattern over the seeds are interchangeable, so counts of patterns are drawn, not samples.

    Args:
        gaps: (S, N) differences.

    Returns:
        (R,) means.
    """
    seeds, samples = gaps.shape
    patterns, counts = np.unique(gaps, axis=1, return_counts=True)
    generator = np.random.Generator(np.random.Philox(seed))
    drawn_seeds, chunk = max(1, seeds - 1), max(1, _CHUNK // len(counts))
    chunks = []
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        seed_counts = generator.multinomial(drawn_seeds, np.full(seeds, 1.0 / seeds), size=size)
        pattern_counts = generator.multinomial(samples, counts / samples, size=size)
        chunks.append(((seed_counts @ patterns) * pattern_counts).sum(1) / (drawn_seeds * samples))
    return np.concatenate(chunks)


def _mean_squares(gaps: np.ndarray, floor: float) -> list[tuple[float, float]]:
    """Contributions to the variance of the mean with their degrees of freedom: samples, seeds, interaction."""
    seeds, samples = gaps.shape
    by_sample, by_seed = gaps.mean(0), gaps.mean(1)
    terms = [(float(by_sample.var(ddof=1)) / samples + floor, samples - 1.0)]
    if seeds > 1:
        rest = gaps - by_sample[None, :] - by_seed[:, None] + gaps.mean()
        freedom = (seeds - 1.0) * (samples - 1.0)
        terms.append((float(by_seed.var(ddof=1)) / seeds, seeds - 1.0))
        terms.append((float((rest**2).sum()) / freedom / (seeds * samples), freedom))
    return terms


def welch(first: Sequence[float], second: Sequence[float], *, floor: float = 0.0) -> Estimate:
    """Difference of two means over seeds, unequal variances.

    Args:
        first: a score per seed, two at least.
        second: the other mixer's.
        floor: added to the variance: what the metric cannot resolve, (1/N)^2 for an accuracy over N samples.
    """
    groups = [np.asarray(values, dtype=np.float64) for values in (first, second)]
    terms = [(float(group.var(ddof=1)) / len(group) + floor / 2, len(group) - 1.0) for group in groups]
    difference = float(groups[0].mean() - groups[1].mean())
    return _interval(difference, sum(term for term, _ in terms), _freedom(terms))


def _freedom(terms: Sequence[tuple[float, float]]) -> float:
    """Satterthwaite's degrees of freedom of a sum of independent variance estimates."""
    total = sum(term for term, _ in terms)
    spread = sum(term * term / freedom for term, freedom in terms)
    return total * total / spread if spread > 0 else 1.0


def _interval(difference: float, variance: float, freedom: float) -> Estimate:
    error = variance**0.5
    half = t_quantile(freedom) * error
    ratio = difference / error if error > 0 else (0.0 if difference == 0 else float("inf"))
    p_value = 2.0 * float(stdtr(freedom, -abs(ratio)))
    return Estimate(
        difference=difference, low=difference - half, high=difference + half, p_value=p_value, freedom=freedom
    )


def t_quantile(freedom: float) -> float:
    """Half the width of a 95 % interval of Student's t, in standard errors."""
    return float(stdtrit(freedom, _UPPER))


def wilson(share: float, samples: int) -> tuple[float, float]:
    """95 % interval of a share of independent samples, within [0, 1]. Reference: Wilson, 1927."""
    normal = float(ndtri(_UPPER))
    square = normal**2
    middle = (share + square / (2 * samples)) / (1 + square / samples)
    half = normal / (1 + square / samples) * sqrt(share * (1 - share) / samples + square / (4 * samples**2))
    return max(0.0, middle - half), min(1.0, middle + half)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: reject where the adjusted value is below the level, for all pairs at once."""
    values = np.asarray(p_values, dtype=np.float64)
    order, adjusted = np.argsort(values, kind="stable"), np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)))
    return adjusted.tolist()
