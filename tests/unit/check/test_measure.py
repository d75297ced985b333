"""What counts as equal, and what a failure says."""

from __future__ import annotations

import math

import pytest
import torch

from subquad_check.meter import CheckFailed, Meter, each, finite


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
    meter = Meter(1e3)
    meter.compare("output", torch.tensor([1.0, bad]), torch.ones(2))
    with pytest.raises(CheckFailed, match="output: has NaN or infinity in 1 of 2 numbers"):
        meter.finding()


def test_a_difference_against_nothing_is_infinite():
    meter = Meter(0.0)
    meter.compare("leak", torch.tensor([1e-30]), None, torch.zeros(1))
    with pytest.raises(
        CheckFailed, match="leak: differs by inf of the largest output, allowed 0, bit for bit"
    ):
        meter.finding()


def test_bit_for_bit_sees_the_last_bit():
    ones = torch.ones(2, dtype=torch.float64)
    meter = Meter(0.0)
    meter.compare("output", torch.nextafter(ones, 2 * ones), ones)
    with pytest.raises(
        CheckFailed,
        match=r"output: differs by 2\.2e-16 of the largest output, allowed 0, bit for bit",
    ):
        meter.finding()
    meter = Meter(1e-9)
    meter.compare("output", torch.nextafter(ones, 2 * ones), ones)
    assert meter.finding("a note").words == "2.2e-16 of the largest, allowed 1.0e-09; a note"
    assert meter.finding().figures == {"worst": meter.worst, "allowed": 1e-9}


def test_shapes_and_dtypes_count():
    message = r"output: \(2,\) float32 instead of \(3,\) float64"
    with pytest.raises(CheckFailed, match=message):
        Meter(1.0).compare("output", torch.ones(2), torch.ones(3, dtype=torch.float64))


def test_of_several_tensors_the_largest_of_all_counts():
    rounding = {"big": torch.ones(1), "tiny": torch.tensor([1e-20])}
    meter = Meter(1e-9)
    for comparison in each({"big": torch.ones(1), "tiny": torch.tensor([3e-20])}, rounding):
        meter.compare(*comparison)
    meter.finding()
    apart = {"big": torch.ones(1), "tiny": torch.tensor([1e-5])}
    for comparison in each(apart, rounding, ", elsewhere"):
        meter.compare(*comparison)
    with pytest.raises(CheckFailed, match="tiny, elsewhere: differs by"):
        meter.finding()


def test_the_largest_difference_is_told_with_their_number():
    meter = Meter(1e-9)
    for what, apart in (("small", 1e-6), ("none", 0.0), ("large", 0.5), ("small again", 1e-5)):
        meter.compare(what, torch.tensor([1.0 - apart]).double(), torch.ones(1).double())
    message = r"large: differs by 5\.0e-01.*; the largest of 3 differences in 4 comparisons"
    with pytest.raises(CheckFailed, match=message):
        meter.finding()


def test_nothing_is_compared_with_nothing():
    assert list(each({}, {})) == []


def test_finite_counts_what_is_not():
    finite("loss", torch.ones(3), None)
    with pytest.raises(
        CheckFailed, match="loss: NaN or infinity in 2 of 3 numbers, the first at row 1"
    ):
        finite("loss", torch.tensor([1.0, math.nan, -math.inf]))
