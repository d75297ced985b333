"""Intervals: coverage by simulation, exact small cases, Welch and Holm against references."""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from subquad.report import stats


def simulate(generator: np.random.Generator, seeds: int, samples: int, levels, seed_spread: float) -> list[np.ndarray]:
    """Two mixers' correctness, (S, N) each: sample difficulty is shared, seeds and the rest are their own."""
    difficulty = generator.normal(size=(1, samples))
    return [
        level
        + seed_spread * generator.normal(size=(seeds, 1))
        + difficulty
        + 0.5 * generator.normal(size=(seeds, samples))
        > 0
        for level in levels
    ]


def true_difference(levels, seed_spread: float) -> float:
    spread = (1.0 + 0.25 + seed_spread**2) ** 0.5
    first, second = (NormalDist().cdf(level / spread) for level in levels)
    return first - second


def covered(seeds: int, levels, seed_spread: float, rounds: int = 250) -> float:
    """Share of simulated comparisons whose interval holds the true difference."""
    generator, truth = np.random.default_rng(20), true_difference(levels, seed_spread)
    hits = 0
    for number in range(rounds):
        first, second = simulate(generator, seeds, 200, levels, seed_spread)
        found = stats.paired_bootstrap(first, second, resamples=300, seed=number)
        hits += found.low <= truth <= found.high
    return hits / rounds


@pytest.mark.ci
@pytest.mark.parametrize("seeds", [2, 3])
@pytest.mark.parametrize("seed_spread", [0.0, 0.2, 0.4])
def test_the_interval_covers_the_true_difference(seeds: int, seed_spread: float):
    assert covered(seeds, (1.3, 1.0), seed_spread) >= 0.93


@pytest.mark.ci
def test_equal_mixers_are_rarely_told_apart():
    assert covered(5, (1.3, 1.3), 0.2) >= 0.95


@pytest.mark.ci
def test_one_seed_covers_only_what_samples_explain():
    """Why one seed gets no verdict: with a spread over seeds the interval is far too narrow."""
    assert covered(1, (1.3, 1.0), 0.0) >= 0.92
    assert covered(1, (1.3, 1.0), 0.4) < 0.6


def test_equal_predictions_have_an_interval_of_one_sample_around_zero():
    same = np.tile(np.arange(370) % 10 > 0, (3, 1))
    found = stats.paired_bootstrap(same, same)
    assert found.difference == 0
    assert found.high == pytest.approx(2.7764 / 370, rel=1e-3)  # t quantile of 4 degrees of freedom, one sample
    assert (found.low, found.p_value) == (-found.high, pytest.approx(1.0))


def test_a_clear_difference_is_found_with_its_size():
    first = np.ones((3, 400), dtype=bool)
    second = np.ones((3, 400), dtype=bool)
    second[:, :240] = False
    found = stats.paired_bootstrap(first, second)
    assert found.difference == pytest.approx(0.6)
    assert 0.5 < found.low < 0.6 < found.high < 0.7
    assert found.p_value < 1e-4


def test_the_same_seed_gives_the_same_interval():
    first, second = simulate(np.random.default_rng(1), 2, 100, (1.0, 0.5), 0.1)
    assert stats.paired_bootstrap(first, second) == stats.paired_bootstrap(first, second)
    assert stats.paired_bootstrap(first, second, seed=1) != stats.paired_bootstrap(first, second)


def test_drawing_patterns_is_drawing_samples():
    """Mean and variance of the resampled means against every resample of a tiny table, by enumeration."""
    gaps = np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    exact = [gaps[seed, list(chosen)].mean() for seed in range(2) for chosen in product(range(3), repeat=3)]
    drawn = stats._bootstrap_means(gaps, resamples=200_000, seed=3)
    assert drawn.mean() == pytest.approx(np.mean(exact), abs=3e-3)
    assert drawn.var() == pytest.approx(np.var(exact), rel=0.02)


def test_resampled_means_come_in_chunks_without_loss(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stats, "_CHUNK", 10)
    assert stats._bootstrap_means(np.array([[1.0, 0.0, -1.0]]), resamples=17, seed=0).shape == (17,)


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=2, max_size=8))
@settings(max_examples=30, deadline=None)
def test_the_interval_turns_with_the_sides(rows: list[list[bool]]):
    table = np.array(rows)
    first, second = table[: len(rows) // 2], table[len(rows) // 2 : 2 * (len(rows) // 2)]
    one, other = (
        stats.paired_bootstrap(first, second, resamples=100),
        stats.paired_bootstrap(second, first, resamples=100),
    )
    assert one.difference == -other.difference
    assert one.low <= one.difference <= one.high
    assert (one.p_value < 0.05) == (one.low > 0 or one.high < 0)


@pytest.mark.parametrize("shapes", [((2, 5), (3, 5)), ((5,), (5,)), ((2, 1), (2, 1))])
def test_unusable_shapes_are_refused(shapes):
    first, second = (np.zeros(shape) for shape in shapes)
    with pytest.raises(ValueError, match="need two equal"):
        stats.paired_bootstrap(first, second)


def test_welch_is_scipys():
    first, second = [0.91, 0.93, 0.92, 0.95], [0.88, 0.90, 0.86]
    found = stats.welch(first, second)
    expected = reference.ttest_ind(first, second, equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.freedom == pytest.approx(expected.df, rel=1e-9)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-7)


def test_welch_without_any_spread():
    assert stats.welch([0.5, 0.5, 0.5], [0.5, 0.5, 0.5]).p_value == 1.0
    assert stats.welch([1.0, 1.0, 1.0], [0.5, 0.5, 0.5]).p_value == 0.0
    floored = stats.welch([1.0, 1.0, 1.0], [0.5, 0.5, 0.5], floor=1 / 100**2)
    assert floored.low < 0.5 < floored.high


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([0.5, 0.9]) == [1.0, 1.0]
    assert stats.holm([]) == []
