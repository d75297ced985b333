"""What counts as equal, and what a failure says."""

from __future__ import annotations

import math

import pytest
import torch

from subquad.testing.check import CheckFailed, Meter, finite


def difference(got, expected, **scale):
    meter = Meter(math.inf)
    meter.compare("output", got, expected, **scale)
    return meter.worst


def test_the_largest_value_is_the_measure():
    got, expected = torch.tensor([100.0, 1.5]), torch.tensor([100.0, 1.0])
    assert difference(got, expected) == pytest.approx(0.005)
    assert difference(got, expected, scale=torch.tensor([1.0])) == pytest.approx(0.5)
    assert difference(torch.zeros(3), torch.zeros(3)) == 0
    assert difference(torch.zeros(0, 4), torch.zeros(0, 4)) == 0


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_never_passes(bad):
    assert difference(torch.tensor([1.0, bad]), torch.ones(2)) == math.inf
    with pytest.raises(CheckFailed, match="differs by inf"):
        Meter(1e3).compare("output", torch.tensor([1.0, bad]), torch.ones(2))


def test_a_difference_against_nothing_is_infinite():
    with pytest.raises(CheckFailed, match="leak: differs by inf of the largest output, allowed 0, bit for bit"):
        Meter(0.0).zero("leak", torch.tensor([1e-30]), scale=torch.zeros(1))


def test_bit_for_bit_sees_the_last_bit():
    one = torch.ones(2, dtype=torch.float64)
    with pytest.raises(CheckFailed, match=r"output: differs by 2\.2e-16 of the largest output, allowed 0, bit for bit"):
        Meter(0.0).compare("output", torch.nextafter(one, 2 * one), one)
    meter = Meter(1e-9)
    meter.compare("output", torch.nextafter(one, 2 * one), one)
    assert meter.finding("a note").seen == "2.2e-16 of the largest output, allowed 1.0e-09; a note"
    assert meter.finding().figures == {"worst": meter.worst, "allowed": 1e-9}


def test_shapes_and_dtypes_count():
    message = r"output: \(2,\) float32 instead of \(3,\) float64"
    with pytest.raises(CheckFailed, match=message):
        Meter(1.0).compare("output", torch.ones(2), torch.ones(3, dtype=torch.float64))


def test_of_several_tensors_the_largest_of_all_counts():
    rounding = {"big": torch.ones(1), "tiny": torch.tensor([1e-20])}
    Meter(1e-9).compare_all({"big": torch.ones(1), "tiny": torch.tensor([3e-20])}, rounding)
    with pytest.raises(CheckFailed, match="tiny, elsewhere: differs by"):
        Meter(1e-9).compare_all({"big": torch.ones(1), "tiny": torch.tensor([1e-5])}, rounding, ", elsewhere")
    Meter(0.0).compare_all({}, {})


def test_finite_counts_what_is_not():
    finite("loss", torch.ones(3), None)
    with pytest.raises(CheckFailed, match="loss: 2 of 3 values are NaN or infinite"):
        finite("loss", torch.tensor([1.0, math.nan, -math.inf]))
