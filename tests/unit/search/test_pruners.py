"""Which trials Optuna's pruners end, asked on the curves of a folder, and what is said of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_trials import ACCURACY, PERPLEXITY, curve, trial

from subquad.errors import ConfigError
from subquad.search.pruner import PRUNERS, Pruner
from subquad.search.trial import Evaluation, Goal


def asha(**settings) -> Pruner:
    return Pruner("asha", ACCURACY, settings)


def pruned_in_order(values, pruner) -> list[bool]:
    """Whether each trial is ended at its first evaluation, one coming after the other."""
    known, found = [], []
    for number, value in enumerate(values):
        known.append(trial(number, value))
        found.append(bool(pruner.reason_to_stop(number, known)))
    return found


def test_none_ends_nothing():
    assert Pruner("none", ACCURACY).reason_to_stop(0, [trial(0, math.nan)]) == ""


def test_it_says_why():
    known = [trial(k, value) for k, value in enumerate([90, 85, 80, 75, 72, 71.2])]
    assert asha().reason_to_stop(5, known) == "asha: accuracy 71.2 at step 10 of 100"
    assert asha().reason_to_stop(0, known) == ""


def test_asha_judges_at_rungs_only_and_never_at_the_end():
    good = [trial(k, *[0.9] * 10) for k in range(5)]
    judged = [
        step for step in range(1, 11) if asha().reason_to_stop(5, [*good, trial(5, *[0.5] * step)])
    ]
    assert judged == [1, 3, 9]


def test_asha_judges_by_the_value_at_the_rung_not_by_a_later_one():
    late = [trial(k, 0.1, 0.99) for k in range(5)]
    assert asha().reason_to_stop(5, [*late, trial(5, 0.5)]) == ""


def test_asha_judges_the_first_evaluation_after_a_rung():
    known = [trial(k, *[0.9] * 5) for k in range(5)]
    sparse = replace(trial(5), curves=((Evaluation(step=40, value=0.5),),))
    assert asha().reason_to_stop(5, [*known, sparse]) == "asha: accuracy 0.5 at step 40 of 100"


@pytest.mark.parametrize("name", ["asha", "median"])
def test_equal_fractions_of_trials_with_other_steps_are_compared(name):
    shorter = [
        replace(
            trial(k, state="finished"), total_steps=10, curves=((Evaluation(step=1, value=0.9),),)
        )
        for k in range(5)
    ]
    pruner = Pruner(name, ACCURACY, settings={"n_warmup_steps": 0} if name == "median" else {})
    assert pruner.reason_to_stop(5, [*shorter, trial(5, 0.5)]) != ""
    unknown = [replace(short_trial, total_steps=0) for short_trial in shorter]
    assert pruner.reason_to_stop(5, [*unknown, trial(5, 0.5)]) == ""


def test_the_best_of_those_at_a_rung_go_on():
    assert pruned_in_order([1, 2, 3, 4, 5, 6], asha()) == [False] * 6
    assert pruned_in_order([6, 5, 4, 3, 2, 1], asha()) == [False, True, True, True, True, True]
    down = Pruner("asha", PERPLEXITY)
    assert pruned_in_order([1, 2, 3], down) == [False, True, True]


def test_a_value_that_is_not_a_number_does_not_pass_a_rung():
    known = [trial(k, *[0.5] * 9) for k in range(3)]
    assert Pruner("asha", ACCURACY).reason_to_stop(3, [*known, trial(3, *[math.nan] * 9)]) != ""


def finished(number, *values):
    return trial(number, *values, state="finished")


def test_the_median_of_finished_trials():
    known = [finished(k, 0.1 * k, 0.1 * k) for k in range(5)]
    assert Pruner("median", ACCURACY).reason_to_stop(5, [*known, trial(5, 0.15, 0.15)]) != ""
    assert Pruner("median", ACCURACY).reason_to_stop(5, [*known, trial(5, 0.25, 0.25)]) == ""
    assert Pruner("median", PERPLEXITY).reason_to_stop(5, [*known, trial(5, 0.25, 0.25)]) != ""
    assert Pruner("median", ACCURACY).reason_to_stop(4, [*known[:4], trial(4, 0.0, 0.0)]) == "", (
        "too few"
    )
    late = Pruner("median", ACCURACY, settings={"n_warmup_steps": 20})
    assert late.reason_to_stop(5, [*known, trial(5, 0.15)]) == "", "before the warm-up is over"


def test_seeds_are_held_against_the_same_seed_of_others():
    good, bad = curve(0.9, 0.9, 0.9), curve(0.1, 0.1, 0.1)
    others = [replace(trial(k), curves=(good, bad)) for k in range(5)]
    fine = replace(trial(5), curves=(good, curve(0.5)))
    assert asha().reason_to_stop(5, [*others, fine]) == ""
    assert asha().reason_to_stop(5, [*others, replace(fine, curves=(curve(0.5),))]) != ""


VALUES = st.lists(st.floats(0, 1) | st.just(math.nan), min_size=1, max_size=9)


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(VALUES, min_size=1, max_size=6), name=st.sampled_from(list(PRUNERS)))
def test_a_verdict_is_a_function_of_the_folder(rows, name):
    known = [trial(k, *values) for k, values in enumerate(rows)]
    verdicts = {Pruner(name, ACCURACY).reason_to_stop(0, known) for _ in range(2)}
    assert len(verdicts) == 1


@pytest.mark.parametrize(
    ("name", "goal", "settings", "said"),
    [
        ("asha", ACCURACY, {"eta": 4}, r"^pruner\.eta: unknown key"),
        (
            "asha",
            ACCURACY,
            {"reduction_factor": 1},
            r"^pruner\.reduction_factor: got 1, must be a whole number >= 2",
        ),
        (
            "median",
            ACCURACY,
            {"n_warmup_steps": 0.5},
            r"^pruner\.n_warmup_steps: got 0\.5, must be a whole number",
        ),
        ("none", ACCURACY, {"grace": 1}, r"^pruner\.grace: unknown key; it takes none$"),
        (
            "asha",
            Goal("accuracy", "max", "flops"),
            {},
            r"^pruner: asha looks at accuracy alone; with a second objecti",
        ),
    ],
)
def test_refusals(name, goal, settings, said):
    with pytest.raises(ConfigError, match=said):
        Pruner(name, goal, settings=settings)
