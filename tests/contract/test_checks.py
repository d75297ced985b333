"""Each check catches the mixer that lacks its property, blames no other, and passes mixers without a fault."""

from __future__ import annotations

from functools import cache

import pytest
from right import RIGHT, Attention, SelfOnly
from wrong import WRONG

from subquad.nn import AttentionMixer
from subquad.plugin import Site
from subquad.testing import Certificate, CheckCase, CheckSubject, NotProven, certify
from subquad.testing.checks import CHECKS
from subquad.testing.subject import check_subjects

GROWTH = {"complexity-flops", "complexity-bytes"}
"""Tests of their own: tests/unit/testing."""

SLOW = {"compiled", *GROWTH}
QUICK = [check.name for check in CHECKS if check.name not in SLOW]


def failed(certificate: Certificate) -> dict[str, str]:
    """What failed, by check."""
    return {one.check: one.detail for one in certificate.outcomes if one.status in ("failed", "not proven")}


@cache
def quick_certificate(mixer: type) -> Certificate:
    """Of a mixer without a fault; made once."""
    return certify(mixer, only=QUICK)


def slow_if(condition: bool):
    return [pytest.mark.ci] if condition else []


@pytest.mark.parametrize(
    ("mixer", "wanted"),
    [pytest.param(*row, id=row[0].__name__, marks=slow_if("compiled" in row[1])) for row in WRONG],
)
def test_a_wrong_mixer_is_caught(mixer, wanted):
    found = failed(certify(mixer, only=wanted))
    assert set(found) == wanted
    assert all("\n" not in detail and len(detail) > 20 for detail in found.values())


PADDING = {"padding-content", "padding-amount"}
DRIFTS = {"batch-outputs", "batch-size", "gradients", "mask-of-ones", "strides", *PADDING}
ALSO = {
    **{key: {"devices"} for key in ("KnowsLength", "NoisyEvaluation", "Unregistered", "Unmoved")},
    **{key: {"gradients"} for key in ("CoupledLoss", "BatchScale", "ScalarLoss", "DetachedLoss")},
    "BatchNorm": {"batch-size", "gradients", "padding-gradients", *PADDING},
    "SqueezesBatch": {"gradients", "padding-amount", "permutation", "precision-bf16", "precision-fp32", "strides"},
    "UnseededBackward": {"gradients", "padding-gradients", "strides"},
    "Remembers": {*DRIFTS, "permutation", "precision-fp32"},
    "StateOutside": {*DRIFTS, "precision-bf16"},
}
"""Other checks that the same fault must fail: in training a batch norm reads padding, for one."""


@pytest.mark.ci
@pytest.mark.parametrize(("mixer", "wanted"), [pytest.param(*row, id=row[0].__name__) for row in WRONG])
def test_no_other_check_blames_it(mixer, wanted):
    names = QUICK + ["compiled"] * ("compiled" in wanted)
    assert set(failed(certify(mixer, only=names))) == wanted | ALSO.get(mixer.__name__, set())


@pytest.mark.parametrize("mixer", RIGHT, ids=lambda mixer: mixer.__name__)
def test_a_right_mixer_passes(mixer):
    certificate = quick_certificate(mixer)
    assert failed(certificate) == {}
    assert certificate.holds
    assert certificate.count("passed") > 20


@pytest.mark.ci
@pytest.mark.parametrize("mixer", RIGHT, ids=lambda mixer: mixer.__name__)
def test_a_right_mixer_passes_the_slow_checks(mixer):
    assert failed(certify(mixer, only=SLOW)) == {}


def test_every_check_has_a_wrong_mixer_and_a_right_one():
    caught = {name for _, names in WRONG for name in names} | {"softmax-weights"} | GROWTH
    assert {check.name for check in CHECKS} == caught
    outcomes = [one for mixer in RIGHT for one in quick_certificate(mixer).outcomes]
    passing = {one.check for one in outcomes if one.status == "passed"}
    assert passing == set(QUICK)


def test_renamed_projections_do_not_take_weights_of_a_softmax_model(monkeypatch):
    class Renamed(AttentionMixer):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self.query_projection = self.query
            del self.query

    (subject,) = check_subjects(SelfOnly)
    (check,) = (one for one in CHECKS if one.name == "softmax-weights")
    assert CheckCase(check, subject).outcome().status == "passed"
    renamed = Renamed(Attention(None, None), Site(dim=16, num_heads=2)).double()
    monkeypatch.setattr(CheckSubject, "build", lambda subject: renamed)
    outcome = CheckCase(check, subject).outcome()
    assert outcome.status == "failed"
    assert "missing ['query_projection.weight', 'query_projection.bias']" in outcome.detail


def test_what_cannot_be_shown_is_not_passed():
    (subject,) = check_subjects(SelfOnly)

    def run(subject):
        raise NotProven("nobody can count it")

    check = next(one for one in CHECKS if one.name == "shapes")
    outcome = CheckCase(type(check)(name="shapes", shows="", run=run), subject).outcome()
    assert (outcome.status, outcome.detail) == ("not proven", "nobody can count it")
