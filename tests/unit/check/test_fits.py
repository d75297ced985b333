"""The class of synthetic counts whose growth is known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subquad_check.fits import CLASSES, MORE, TERMS, exceeds, fit_growth

LADDERS = (
    [64, 128, 256, 512, 1024],
    [256, 512, 1024, 2048, 4096, 8192],
    [2048 * 2**k for k in range(6)],
)
ladders = st.sampled_from(LADDERS)
classes = st.sampled_from(CLASSES)
amounts = st.floats(0.0, 1.0)


def mixture(lengths, name, own, constant, linear):
    """Counts whose terms stand in these ratios at the longest length."""
    top = lengths[-1]
    parts = [
        own * TERMS[name](length) / TERMS[name](top) + constant + linear * length / top
        for length in lengths
    ]
    return [round(1e12 * part) for part in parts]


@given(ladders, classes, st.floats(0.05, 1.0), amounts, amounts)
def test_exact_counts_beside_constants_and_linear_terms(lengths, name, own, constant, linear):
    assert fit_growth(lengths, mixture(lengths, name, own, constant, linear)).growth == name


@given(ladders, st.floats(2.0, 60.0))
def test_l_log_l_with_a_large_factor_is_still_no_l(lengths, factor):
    counts = [length * (factor + math.log2(length)) for length in lengths]
    assert fit_growth(lengths, counts).growth == "L log L"


@given(ladders, classes, st.integers(1, 64), st.integers(0, 40), st.floats(0.0, 0.05))
def test_blocks_that_are_filled_up_change_nothing(lengths, name, block, kernel, constant):
    """FFT lengths and blocks: L + kernel, rounded up to a multiple; at the shortest length at
    most 3 % more.
    """
    block, kernel = min(block, lengths[0] // 64), min(kernel, lengths[0] // 64)
    padded = [-(-(length + kernel) // block) * block for length in lengths]
    counts = [TERMS[name](length) for length in padded]
    assert fit_growth(lengths, [count + constant * counts[-1] for count in counts]).growth == name


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("lengths", LADDERS)
def test_accidents_of_three_percent_rarely_mislead(name, lengths):
    generator = np.random.default_rng(5)
    trials = [
        [TERMS[name](length) * (1 + generator.uniform(0, 0.03)) for length in lengths]
        for _ in range(100)
    ]
    assert sum(fit_growth(lengths, counts).growth == name for counts in trials) >= 94


@given(ladders, st.floats(2.2, 4.0))
def test_more_than_squares(lengths, exponent):
    found = fit_growth(lengths, [length**exponent for length in lengths])
    assert found.growth == MORE
    assert found.exponent == pytest.approx(exponent)


def test_roots_that_are_rounded_up():
    lengths = [256, 512, 1024, 2048, 4096, 8192]
    assert (
        fit_growth(lengths, [length * math.ceil(math.sqrt(length)) for length in lengths]).growth
        == "L^1.5"
    )


def test_terms_of_all_lower_classes_may_be_there():
    lengths = LADDERS[1]
    counts = [length**2 + 40 * length * math.log2(length) + 3 * length**1.5 for length in lengths]
    assert fit_growth(lengths, counts).growth == "L^2"


def test_a_slight_sort_is_not_held_against_l():
    lengths = LADDERS[1]
    assert (
        fit_growth(
            lengths, [5000 * length + 2 * length * math.log2(length) for length in lengths]
        ).growth
        == "L"
    )
    assert (
        fit_growth(
            lengths, [100 * length + 2 * length * math.log2(length) for length in lengths]
        ).growth
        == "L log L"
    )


def test_a_slight_square_is_held_against_l():
    lengths = LADDERS[1]
    assert (
        fit_growth(lengths, [5000 * length + length**2 / 1000 for length in lengths]).growth
        == "L^2"
    )


def test_steps_fit_no_class():
    found = fit_growth(LADDERS[1], [1, 1, 1, 9, 9, 9])
    assert found.growth is None
    assert str(found).startswith("no class (exponent ")


def test_nothing_and_constants_count_as_l():
    assert fit_growth(LADDERS[0], [0] * 5).growth == "L"
    assert fit_growth(LADDERS[0], [7] * 5).growth == "L"


def test_exponent_and_residuals_are_reported():
    found = fit_growth(LADDERS[1], [3 * length**2 for length in LADDERS[1]])
    assert found.exponent == pytest.approx(2)
    assert found.residuals["L^2"] < 1e-9 < 0.5 < found.residuals["L"]


def test_order_of_classes():
    assert exceeds("L log L", "L")
    assert exceeds(MORE, "L^2")
    assert not exceeds("L", "L")
