"""Student's t without scipy, against scipy."""

from __future__ import annotations

import math

import pytest
from scipy import stats as reference

from subquad.report import student

FREEDOMS = (0.7, 1.0, 2.0, 3.3, 10.0, 369.0, 20_000.0)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("value", [-40.0, -2.0, -0.1, 0.0, 0.5, 3.0, 60.0])
def test_distribution_function(value: float, freedom: float):
    assert student.cdf(value, freedom) == pytest.approx(reference.t.cdf(value, freedom), abs=1e-10)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_small_p_values_keep_their_digits(freedom: float):
    assert student.two_sided(-12.0, freedom) == pytest.approx(2 * reference.t.sf(12.0, freedom), rel=1e-8)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("probability", [0.025, 0.4, 0.6, 0.975])
def test_quantile(probability: float, freedom: float):
    assert student.quantile(probability, freedom) == pytest.approx(reference.t.ppf(probability, freedom), rel=1e-7)


def test_an_infinite_ratio_has_p_value_zero():
    assert student.two_sided(math.inf, 3.0) == 0.0
