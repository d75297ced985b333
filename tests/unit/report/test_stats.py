"""Intervals: coverage and error rates by simulation, exact cases, Student and Holm against
references.
"""

# pyright: reportAttributeAccessIssue=false
from __future__ import annotations

from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from subquad.reports import stats


def compared(*correct: np.ndarray, resolution: float | None = None) -> stats.Estimate:
    """The first two mixers; all of them say how much seeds vary."""
    scores = [stats.Scores.of(answers) for answers in correct]
    finest = 1 / correct[0].size if resolution is None else resolution
    return stats.difference(scores[0], scores[1], stats.seed_variance(scores), resolution=finest)


def simulate(
    generator: np.random.Generator, seeds: int, samples: int, levels, seed_spread: float
) -> list[np.ndarray]:
    """Two mixers' correctness, (S, N) each: sample difficulty is shared, seeds and the rest are
    their own.
    """
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


def covered(seeds: int, levels, seed_spread: float, rounds: int = 1000) -> float:
    """Share of simulated comparisons whose interval holds the true difference."""
    generator, truth = np.random.default_rng(20), true_difference(levels, seed_spread)
    hits = 0
    for _ in range(rounds):
        found = compared(*simulate(generator, seeds, 200, levels, seed_spread))
        hits += found.low <= truth <= found.high
    return hits / rounds


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("seed_spread", [0.0, 0.2, 0.4])
def test_the_interval_covers_the_true_difference(seeds: int, seed_spread: float):
    assert 0.93 <= covered(seeds, (1.3, 1.0), seed_spread) <= 0.97


def test_one_seed_covers_only_what_samples_explain():
    """Why one seed gets no verdict: with a spread over seeds the interval is far too narrow."""
    assert covered(1, (1.3, 1.0), 0.0) >= 0.92
    assert covered(1, (1.3, 1.0), 0.4) < 0.6


@pytest.mark.parametrize(("mixers", "seeds"), [(2, 2), (2, 3), (5, 3)])
def test_equal_mixers_are_told_apart_as_often_as_the_level_says(mixers: int, seeds: int):
    """Also where each mixer has samples of its own that it finds hard, which a test over seeds
    alone would miss.
    """
    generator, found = np.random.default_rng(3), list[bool]()
    for _ in range(1500 // mixers):
        tables = simulate(generator, seeds, 200, [1.3] * mixers, 0.1)
        # a mixer's samples, the same for all seeds
        own = [table ^ (generator.random((1, 200)) < 0.15) for table in tables]
        scores = [stats.Scores.of(answers) for answers in own]
        variance = stats.seed_variance(scores)
        for combination, other in combinations(scores, 2):
            found.append(
                stats.difference(combination, other, variance, resolution=1 / 200).p_value < 0.05
            )
    assert 0.03 <= np.mean(found) <= 0.07


def test_two_of_a_kind_are_compared_by_students_test():
    """Without sample effects, and with nothing that the metric cannot resolve."""
    first, second = np.array([0.91, 0.93, 0.92, 0.95]), np.array([0.88, 0.90, 0.86])
    groups = [stats.Scores(first), stats.Scores(second)]
    found = stats.difference(groups[0], groups[1], stats.seed_variance(groups))
    expected = reference.ttest_ind(first, second)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.freedom == pytest.approx(expected.df, rel=1e-9)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-7)


def test_other_mixers_say_how_much_seeds_vary():
    """Analysis of variance: the error of all groups, with the degrees of freedom of all."""
    groups = [
        stats.Scores(np.array(values)) for values in ([0.9, 0.92], [0.8, 0.86], [0.7, 0.71, 0.75])
    ]
    variance, freedom = stats.seed_variance(groups)
    assert freedom == 4
    assert variance == pytest.approx((0.0002 + 0.0018 + 0.0014) / 4)
    alone = stats.difference(groups[0], groups[1], stats.seed_variance(groups[:2]))
    among = stats.difference(groups[0], groups[1], (variance, freedom))
    assert among.freedom > alone.freedom
    assert among.high - among.low < alone.high - alone.low


def test_samples_of_one_seed_are_compared_by_the_paired_test():
    """McNemar's question as a t test: the answers' differences, sample by sample."""
    generator = np.random.default_rng(4)
    first, second = (generator.random((1, 300)) < share for share in (0.9, 0.8))
    found = compared(first, second, resolution=0.0)
    expected = reference.ttest_rel(first[0].astype(float), second[0].astype(float))
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.freedom == pytest.approx(299)


def test_the_noise_of_answers_counts_once():
    """Answers by chance alone: the two variances of the mean must not both hold the noise."""
    generator = np.random.default_rng(5)
    widths = [
        np.diff(
            [(estimate := compared(*(generator.random((2, 10, 500)) < 0.5))).low, estimate.high]
        )[0]
        for _ in range(200)
    ]
    # standard error sqrt(2 * 0.25 / (10 * 500)) = 0.01, t quantile 2.1 of 18 degrees of freedom
    assert np.mean(widths) == pytest.approx(2 * 2.1 * 0.01, rel=0.1)


def test_equal_predictions_have_an_interval_of_one_sample_around_zero():
    same = np.tile(np.arange(370) % 10 > 0, (3, 1))
    found = compared(same, same)
    assert found.difference == 0
    assert 1.96 / 370 < found.high < 2.1 / 370
    assert (found.low, found.p_value) == (-found.high, pytest.approx(1.0))


def test_a_clear_difference_is_found_with_its_size():
    first = np.ones((3, 400), dtype=bool)
    second = np.ones((3, 400), dtype=bool)
    second[:, :240] = False
    found = compared(first, second)
    assert found.difference == pytest.approx(0.6)
    assert 0.5 < found.low < 0.6 < found.high < 0.7
    assert found.p_value < 1e-4


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=2, max_size=8))
def test_the_interval_turns_with_the_sides(rows: list[list[bool]]):
    table = np.array(rows)
    first, second = table[: len(rows) // 2], table[len(rows) // 2 :]
    forward, backward = compared(first, second), compared(second, first)
    assert forward.difference == -backward.difference
    assert forward.low <= forward.difference <= forward.high
    assert (forward.p_value < 0.05) == (forward.low > 0 or forward.high < 0)


@pytest.mark.parametrize("shape", [(5,), (2, 1)])
def test_unusable_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="need an"):
        stats.Scores.of(np.zeros(shape))


def test_without_any_spread():
    same, other = stats.Scores(np.array([0.5] * 3)), stats.Scores(np.array([1.0] * 3))
    assert stats.difference(same, same, (0.0, 4.0)).p_value == 1.0
    assert stats.difference(other, same, (0.0, 4.0)).p_value == 0.0
    floored = stats.difference(other, same, (0.0, 4.0), resolution=1 / 100)
    assert floored.low < 0.5 < floored.high


def test_holm_by_hand():
    assert stats.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert stats.holm([0.5, 0.9]) == [1.0, 1.0]
    assert stats.holm([]) == []
