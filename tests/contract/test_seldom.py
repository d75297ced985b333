"""What is wrong only now and then is found, and what only looks as if it were is not blamed."""

from __future__ import annotations

import pytest
from apt import APT, DroppingWeights, Recurrent
from seldom import OFTEN
from test_checks import QUICK, SLOW, failed, slow_if

from subquad.testing import certify

DEAR = {"compiled", "complexity-bytes"}


@pytest.mark.parametrize(
    ("mixer", "check"),
    [pytest.param(*row, id=row[0].__name__, marks=slow_if(row[1] in DEAR)) for row in OFTEN.items()],
)
def test_what_is_seldom_wrong_is_caught(mixer, check):
    assert check in failed(certify(mixer, only=[check]))


@pytest.mark.parametrize(
    "mixer", [pytest.param(one, id=one.__name__, marks=slow_if(one in (Recurrent, DroppingWeights))) for one in APT]
)
def test_a_right_mixer_of_a_doubtful_kind_passes(mixer):
    assert failed(certify(mixer, only=QUICK)) == {}


@pytest.mark.ci
@pytest.mark.parametrize("mixer", APT, ids=lambda mixer: mixer.__name__)
def test_a_right_mixer_of_a_doubtful_kind_passes_the_slow_checks(mixer):
    assert failed(certify(mixer, only=SLOW)) == {}


@pytest.mark.ci
def test_a_compiled_mixer_says_in_how_many_pieces():
    (branching,) = (one for one in APT if one.__name__ == "Branching")
    (outcome,) = certify(branching, only=["compiled"]).outcomes
    assert outcome.status == "passed"
    assert outcome.detail.endswith("aot_eager, 4 graphs, 2 graph breaks, 0 fallbacks")
