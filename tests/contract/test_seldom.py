"""What is wrong only now and then is found, and what only looks as if it were is not blamed."""

from __future__ import annotations

import pytest
from apt import APT, DroppingWeights, Recurrent
from right import Pooled
from seldom import HARDLY_COMPILED, OFTEN
from test_checks import QUICK, SLOW, failed, slow_if
from unusual import MISSED, UNUSUAL

from subquad_check import certify
from subquad_check.checks.compiled import COMPILED

DEAR = {"compiled", "complexity"}


@pytest.mark.parametrize(
    ("mixer", "check"),
    [
        pytest.param(*row, id=row[0].__name__, marks=slow_if(row[1] in DEAR))
        for row in (OFTEN | MISSED).items()
    ],
)
def test_what_is_seldom_wrong_is_caught(mixer, check):
    assert check in failed(certify(mixer, only=[check]))


@pytest.mark.parametrize(
    "mixer",
    [
        pytest.param(mixer, id=mixer.__name__, marks=slow_if(mixer in (Recurrent, DroppingWeights)))
        for mixer in APT + UNUSUAL
    ],
)
def test_a_right_mixer_of_a_doubtful_kind_passes(mixer):
    assert failed(certify(mixer, only=QUICK)) == {}


@pytest.mark.ci
@pytest.mark.parametrize("mixer", APT + UNUSUAL, ids=lambda mixer: mixer.__name__)
def test_a_right_mixer_of_a_doubtful_kind_passes_the_slow_checks(mixer):
    assert failed(certify(mixer, only=SLOW)) == {}


@pytest.mark.ci
def test_a_compiled_mixer_says_in_how_many_pieces():
    (branching,) = (mixer for mixer in APT if mixer.__name__ == "Branching")
    (outcome,) = certify(branching, only=["compiled"]).outcomes
    assert outcome.status == "passed"
    assert outcome.detail.endswith("aot_eager, 4 graphs, 2 graph breaks, 0 fallbacks")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("mixer", "note"), HARDLY_COMPILED.items(), ids=lambda value: getattr(value, "__name__", "")
)
def test_what_torch_leaves_uncompiled_is_told_and_breaks_no_claim(mixer, note):
    (outcome,) = certify(mixer, only=["compiled"]).outcomes
    assert outcome.status == "passed"
    assert f"; {note}" in outcome.detail
    assert outcome.figures["compiled"] < COMPILED * outcome.figures["operations"]


@pytest.mark.ci
def test_a_compiler_that_fails_is_no_fault_of_the_mixer(monkeypatch):
    def fails(graph, inputs):
        raise ValueError("Cannot view a tensor")

    monkeypatch.setattr("torch._dynamo.backends.registry.lookup_backend", lambda name: fails)
    (outcome,) = certify(Pooled, only=["compiled"], compiler="inductor").outcomes
    assert (outcome.status, outcome.detail) == (
        "excluded",
        "not tested, because torch's compiler fails where the same call works without it: "
        "BackendCompilerFailed: backend='inductor' raised: ValueError: Cannot view a tensor",
    )
