"""Differences between mixers with their uncertainty: over new seeds and new test samples at once.

Letters: S seeds of a mixer, N test samples, which all mixers share. A mixer's answer to sample n
with seed s is taken as mean + seed effect + sample effect + noise, all random; sample effects
differ between mixers. So the variance of a difference between two means is that of the seeds plus
that of the difference in sample effects. Limits and simulated error rates:
docs/reference/report.md.

References: Cornfield and Tukey, "Average values of mean squares in factorials", 1956 (crossed
random factors); Satterthwaite, 1946; Agresti and Min, 2005 (one more discordant pair); Holm, 1979;
Wilson, 1927. Over data sets: Friedman, 1937; Wilcoxon, 1945; Pratt, 1959 (zeros); Nemenyi, 1963;
Demsar, 2006 (which of them when).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import factorial, inf, sqrt
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

_UPPER = 0.975
"""Upper end of a two-sided 95 % interval."""

_ARRANGEMENTS = 50_000
"""Of a permutation test: so many are all counted; of more so many are drawn."""

_BATCH = 5_000
"""Arrangements that are in memory at once."""

_DECIMALS = 9
"""Differences between scores that are nearer to each other than this are equal."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A difference, first minus second, in units of the metric.

    Attributes:
        low: lower end of the 95 % interval.
        high: upper end.
        p_value: two-sided, of no difference; below 0.05 exactly where the interval excludes 0.
        freedom: degrees of freedom of the t quantile behind both.
        least: half the interval's width that would be left with any number of seeds.
    """

    difference: float
    low: float
    high: float
    p_value: float
    freedom: float
    least: float


@dataclass(frozen=True)
class Scores:
    """What one mixer scored.

    Attributes:
        by_seed: (S,) scores.
        by_sample: (N,) means over the seeds for each test sample; None where only scores are known.
        noise: variance of one answer beyond the effects of its seed and its sample.
    """

    by_seed: np.ndarray
    by_sample: np.ndarray | None = None
    noise: float = 0.0

    @staticmethod
    def of(answers: np.ndarray) -> Scores:
        """Scores of (S, N) answers, such as 1 where right and 0 where wrong.

        Raises:
            ValueError: another shape, or fewer than two samples.
        """
        if answers.ndim != 2 or answers.shape[1] < 2:
            raise ValueError(f"need an (S, N) array with N >= 2, got {answers.shape}")
        answers = answers.astype(np.float64)
        seeds, samples = answers.shape
        by_seed = answers.mean(1)
        by_sample = answers.mean(0)
        rest = answers - by_seed[:, None] - by_sample + answers.mean()
        noise = float((rest**2).sum()) / (max(1, seeds - 1) * (samples - 1))
        return Scores(by_seed, by_sample, noise)


def why_alike(estimates: Iterable[Estimate | None]) -> str:
    """Whether more seeds could tell: with very many of them, a difference as found would stand
    out of the samples'.
    """
    if any(estimate and abs(estimate.difference) > estimate.least for estimate in estimates):
        return "too few seeds to tell"
    return "this data set cannot tell mixers apart in this setting"


def seed_variance(groups: Sequence[Scores]) -> tuple[float, float]:
    """Variance of one seed's score, pooled over mixers, and its degrees of freedom (0: no mixer has
    two seeds).

    Pooled, as with two or three seeds a mixer's own variance is hardly known: the t quantile would
    be 4.3 or more.
    """
    apart = [scores.by_seed - scores.by_seed.mean() for scores in groups]
    freedom = float(sum(len(gaps) - 1 for gaps in apart))
    squares = sum(float((gaps**2).sum()) for gaps in apart)
    return (squares / freedom, freedom) if freedom else (0.0, 0.0)


def difference(
    first: Scores, second: Scores, seeds: tuple[float, float], *, resolution: float = 0.0
) -> Estimate:
    """Difference of two mixers' means.

    Args:
        first, second: both with the same test samples, or one without any: then it holds for these
            samples only.
        seeds: of `seed_variance`.
        resolution: what one answer changes, 1/(S N) for an accuracy; without it equal answers would
            be certain.
    """
    pair = (first, second)
    variance, freedom = seeds
    of_seeds = variance * sum(1 / len(scores.by_seed) for scores in pair)
    lasting = resolution**2
    noise = 0.0
    parts: list[tuple[float, float]] = []
    if first.by_sample is not None and second.by_sample is not None:
        gaps = first.by_sample - second.by_sample
        samples = len(gaps)
        # both mean squares hold the noise, which must count once
        if freedom:
            noise = sum(scores.noise / len(scores.by_seed) for scores in pair) / samples
        extra, of_samples = _of_samples(gaps, noise)
        if extra > 0:
            lasting += extra
            parts.append((extra, of_samples))
    # seeds that agree by chance, more than the noise allows, must not pass for certainty
    if freedom:
        parts.append((max(of_seeds, noise), freedom))
    error = sqrt(of_seeds + lasting)
    gap = float(first.by_seed.mean()) - float(second.by_seed.mean())
    # Satterthwaite's of a sum of independent variance estimates; where all are 0 the largest
    freedom = max((own for _, own in parts), default=0.0) or 1.0
    if spread := sum(part * part / own for part, own in parts):
        freedom = sum(part for part, _ in parts) ** 2 / spread
    half = t_quantile(freedom) * error
    ratio = abs(gap) / error if error else (inf if gap else 0.0)
    return Estimate(
        difference=gap,
        low=gap - half,
        high=gap + half,
        p_value=2.0 * float(stdtr(freedom, -ratio)),
        freedom=freedom,
        least=float(ndtri(_UPPER)) * sqrt(lasting),
    )


def _of_samples(gaps: np.ndarray, noise: float) -> tuple[float, float]:
    """Variance of the mean of (N,) differences beyond the noise, and its degrees of freedom."""
    samples = len(gaps)
    freedom = samples - 1.0
    variance = float(gaps.var(ddof=1)) / samples
    if not variance:
        # agreeing everywhere: as if not on one sample
        return 1 / samples**2, freedom
    extra = variance - noise
    if extra <= 0:
        return 0.0, freedom
    return extra, freedom * min(1.0, extra / variance) ** 2


def t_quantile(freedom: float) -> float:
    """Half the width of a 95 % interval of Student's t, in standard errors."""
    return float(stdtrit(freedom, _UPPER))


@dataclass(frozen=True)
class Chance:
    """A p-value of a permutation test.

    Attributes:
        p_value: share of the arrangements that say at least as much as what was found.
        arrangements: how many were looked at.
        counted: whether these are all; else they were drawn, with a fixed seed.
    """

    p_value: float
    arrangements: int
    counted: bool

    @staticmethod
    def of(p_value: Any, arrangements: int) -> Chance:
        """Of a test with so many arrangements, of which it looked at `_ARRANGEMENTS` at most."""
        looked_at = min(arrangements, _ARRANGEMENTS)
        return Chance(float(p_value), looked_at, arrangements == looked_at)

    @property
    def words(self) -> str:
        """`counted over all 216 arrangements`."""
        if self.counted:
            return f"counted over all {self.arrangements:,} arrangements"
        return f"from {self.arrangements:,} drawn arrangements"


def friedman(ranks: np.ndarray) -> Chance:
    """Chance of no difference between k mixers, from their (D, k) ranks on D >= 2 data sets.

    A permutation test with Friedman's statistic: his chi-square holds for many data sets only. The
    order of the mixers on the first data set stays, as the statistic is the same whatever the
    mixers are called. The statistic is exact in floating point.
    """
    from scipy.stats import permutation_test

    first = ranks[0]
    rest = ranks[1:]

    def spread(*rows: np.ndarray, axis: int) -> np.ndarray:
        return ((first + np.sum(rows, axis=0)) ** 2).sum(axis=axis)

    found = permutation_test(
        tuple(rest),
        spread,
        permutation_type="pairings",
        vectorized=True,
        alternative="greater",
        axis=-1,
        **_resampling(),
    )
    return Chance.of(found.pvalue, factorial(len(first)) ** len(rest))


def signed_rank(differences: np.ndarray) -> Chance:
    """Two-sided chance of (D,) differences in Wilcoxon's signed-rank test; zeros keep their
    ranks (Pratt).
    """
    from scipy.stats import PermutationMethod, wilcoxon

    gaps = differences.round(_DECIMALS)
    if not gaps.any():
        return Chance(1.0, 1, True)
    sizes = np.unique(np.abs(gaps))
    is_exact = len(sizes) == len(gaps) and bool(sizes[0])
    method: Any = "exact" if is_exact else PermutationMethod(**_resampling())
    found: Any = wilcoxon(gaps, zero_method="pratt", method=method)
    arrangements = 2 ** len(gaps)
    if is_exact:
        return Chance(float(found.pvalue), arrangements, True)
    return Chance.of(found.pvalue, arrangements)


def _resampling() -> dict[str, Any]:
    """How many arrangements SciPy looks at, and how it draws them where that is not all."""
    return {
        "n_resamples": _ARRANGEMENTS,
        "batch": _BATCH,
        "rng": np.random.Generator(np.random.Philox(0)),
    }


def critical_difference(mixers: int, datasets: int) -> float:
    """Nemenyi's: mean ranks of any two of k mixers that are further apart differ, at 5 % for all
    pairs at once.
    """
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(0.95, mixers, np.inf))
    return quantile * sqrt(mixers * (mixers + 1) / (12 * datasets))


def wilson(share: float, samples: int) -> tuple[float, float]:
    """95 % interval of a share of independent samples, within [0, 1], with the share in it.

    Reference: Wilson, 1927.
    """
    spread = float(ndtri(_UPPER)) ** 2 / samples
    middle = (share + spread / 2) / (1 + spread)
    half = sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    # by rounding an end may lie beyond 0, 1 or the share
    return min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment: reject where the adjusted value is below the level, for all
    pairs at once.
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    adjusted[order] = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    return adjusted.clip(max=1.0).tolist()
