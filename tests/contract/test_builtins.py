"""The certificate of every built-in mixer, against the second record of its claims, `about.py`."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from built_in import abouts, built

from subquad.plugin import Facts
from subquad.registry import resolve
from subquad_check import CheckCase, CheckFailed, CheckSubject, NotProven, check_mixer
from subquad_check.checks import CHECKS
from subquad_check.checks.compiled import COMPILED
from subquad_check.subject import check_subjects
from subquad_plugins.about import Expected

QUICK = {
    "shapes",
    "leak",
    "causal-outputs",
    "padding-content",
    "padding-amount",
    "batch-outputs",
    "permutation",
}
QUICK |= {"all-padded", "cache-step", "state-round-trip", "parameters-used", "max-length"}
"""For the fast tier, of each mixer's defaults."""

LONG = {"compiled", "complexity", "process-kept", "precision-fp32", "precision-bf16"}
LONG |= {"devices", "determinism", "lengths", "strides"}
"""Two thirds of the time of a certificate: in CI of one way for each mixer, else extended. Other
ways show in CI what they claim, and their gradients, kernels and caches.
"""

MANY_CHUNKS = {"reformer": "default, causal"}
"""Ways that take a minute, as their sequences have many chunks. CI takes the mixer's other causal
ways.
"""


def rows() -> list[tuple[str, str]]:
    return [(name, way) for name in abouts() for way in built(name)]


def cases(name: str, way: str, tier: str) -> list[CheckCase]:
    """The cases of one way of building that must pass, of one tier: fast, ci or extended."""
    of_way = [case for case in check_mixer(f"subquad:{name}") if str(case.subject) == way]
    due = [case for case in of_way if case.check.name not in expected(case.subject).excluded]
    return [case for case in due if tier_of(name, way, case.check.name) == tier]


def tier_of(name: str, way: str, check: str) -> str:
    if way == "default" and check in QUICK:
        return "fast"
    first = next(iter(abouts()[name].ways), way)
    if MANY_CHUNKS.get(name) == way or (check in LONG and way != first):
        return "extended"
    return "ci"


def expected(subject: CheckSubject) -> Expected:
    """What is written down of one way of building; nothing excluded where that is nothing."""
    name, way = subject.resolved.found.name, str(subject)
    about = abouts()[name]
    row = about.ways.get(way, Expected(Facts(), frozenset()))
    further = set[str]()
    if way not in about.operations:
        further.add("kernels")
    if subject.variant != "default":
        further |= {"parameter-values", "other-sizes"}
    return replace(row, excluded=row.excluded | further)


def test_every_built_in_is_written_down():
    assert {name: set(built(name)) for name in abouts()} == {
        name: set(about.ways) for name, about in abouts().items()
    }


@pytest.mark.parametrize(("name", "way"), rows())
def test_a_built_in_claims_what_is_written_down(name, way):
    subject = built(name)[way]
    assert asdict(subject.facts) == asdict(expected(subject).facts)


@pytest.mark.parametrize(("name", "way"), rows())
def test_no_other_check_is_excluded(name, way):
    subject = built(name)[way]
    by_facts = {check.name for check in CHECKS if check.excluded(subject)}
    sites = [check for check in CHECKS if check.name == "class-token"]
    refused = {
        check.name for check in sites if CheckCase(check, subject).outcome().status == "excluded"
    }
    assert by_facts | refused == expected(subject).excluded


def mostly_compiled(figures: dict[str, int]) -> bool:
    """Whether torch still compiles most of a mixer, which is no claim of it but ours."""
    called = figures["operations"]
    return called < 2 or figures["compiled"] >= COMPILED * called


def test_a_built_in_that_stops_compiling_is_found():
    assert mostly_compiled({"operations": 10, "compiled": 5})
    assert not mostly_compiled({"operations": 10, "compiled": 4})


def failures(cases: list[CheckCase]) -> list[str]:
    """What did not pass, a line each; a check that is excluded has not passed."""
    found = []
    for case in cases:
        try:
            finding = case()
            if not finding.words:
                found.append(f"{case}: saw nothing")
            if case.check.name == "compiled" and not mostly_compiled(finding.figures):
                found.append(f"{case}: {finding.words}")
        except pytest.skip.Exception as reason:
            found.append(f"{case}: excluded, which is not written down: {reason}")
        except (CheckFailed, NotProven) as reason:
            found.append(f"{case}: {reason}")
    return found


@pytest.mark.parametrize("name", abouts())
def test_a_built_in_keeps_its_word(name):
    assert failures(cases(name, "default", "fast")) == []


@pytest.mark.parametrize("claimed", [True, False])
def test_samples_are_not_apart_where_a_method_was_published_so(claimed: bool):
    """Nystrom's authors start all inverses of a batch from its largest sum; the fact says so."""
    params = {"num_landmarks": 5, "as_published": True}
    (subject,) = check_subjects(resolve("mixer", "subquad:nystrom"), params)
    assert subject.facts.couples_samples
    subject = replace(subject, facts=replace(subject.facts, couples_samples=claimed))
    due = [check for check in CHECKS if check.name.startswith("batch-")]
    outcomes = {check.name: CheckCase(check, subject).outcome().status for check in due}
    status = "excluded" if claimed else "failed"
    assert outcomes == dict.fromkeys(("batch-outputs", "batch-gradients"), status)


@pytest.mark.ci
@pytest.mark.parametrize(("name", "way"), rows())
def test_a_built_in_keeps_its_word_in_all_variants(name, way):
    assert failures(cases(name, way, "ci")) == []


@pytest.mark.extended
@pytest.mark.parametrize(("name", "way"), rows())
def test_what_takes_long_holds_in_all_variants(name, way):
    assert failures(cases(name, way, "extended")) == []
