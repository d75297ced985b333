"""Which trials are stopped, and what is said of them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_trials import ACCURACY, PERPLEXITY, trial

from subquad.errors import ConfigError
from subquad.search.schedulers import SCHEDULERS, scheduler
from subquad.search.searcher import Goal
from subquad.search.trial import Evaluation


def asha(**settings):
    """Without a margin, unless one is given."""
    return scheduler("asha", ACCURACY, {"margin": 0, **settings})


def stopped_in_order(values, judge) -> list[bool]:
    """Whether each trial is stopped at its first evaluation, one coming after the other."""
    known, found = [], []
    for number, value in enumerate(values):
        known.append(trial(number, value))
        found.append(bool(judge.reason_to_stop(number, known)))
    return found


def test_none_stops_nothing():
    assert scheduler("none", ACCURACY).reason_to_stop(0, [trial(0, math.nan)]) == ""


def test_asha_says_why():
    known = [trial(k, value) for k, value in enumerate([90, 85, 80, 75, 72, 71.2])]
    assert asha().reason_to_stop(5, known) == "rung 10 of 100 steps: 71.2 is not among the best 2 of 6"
    assert asha().reason_to_stop(1, known) == ""


def test_asha_judges_at_rungs_only_and_never_at_the_end():
    good = [trial(k, *[0.9] * 10) for k in range(5)]
    judged = [step for step in range(1, 11) if asha().reason_to_stop(9, [*good, trial(9, *[0.5] * step)])]
    assert judged == [1, 3, 9]


def test_asha_judges_by_the_value_at_the_rung_not_by_a_later_one():
    late = [trial(k, 0.1, 0.99) for k in range(5)]
    assert asha().reason_to_stop(9, [*late, trial(9, 0.5)]) == ""


def test_asha_judges_the_first_evaluation_after_a_rung():
    known = [trial(k, *[0.9] * 5) for k in range(5)]
    sparse = replace(trial(9), curve=(Evaluation(step=40, value=0.5),))
    assert asha().reason_to_stop(9, [*known, sparse]) == "rung 30 of 100 steps: 0.5 is not among the best 2 of 6"


def test_asha_compares_equal_fractions_of_trials_with_other_steps():
    shorter = [replace(trial(k), total_steps=10, curve=(Evaluation(step=1, value=0.9),)) for k in range(5)]
    assert asha().reason_to_stop(9, [*shorter, trial(9, 0.5)]) != ""
    unknown = [replace(one, total_steps=0) for one in shorter]
    assert asha().reason_to_stop(9, [*unknown, trial(9, 0.5)]) == ""


def test_asha_of_a_falling_metric():
    known = [trial(k, value) for k, value in enumerate([3.0, 2.0, 4.0])]
    judge = scheduler("asha", PERPLEXITY, {"margin": 0})
    assert [bool(judge.reason_to_stop(number, known)) for number in range(3)] == [True, False, True]


def test_asha_stops_what_is_no_number_even_the_first():
    assert asha().reason_to_stop(0, [trial(0, math.nan)]) == "rung 10 of 100 steps: the value is not a number"


def test_asha_breaks_ties_by_loss():
    known = [replace(trial(k), curve=(Evaluation(step=10, value=0.5, loss=loss),)) for k, loss in enumerate([1.0, 0.5])]
    assert [bool(asha(eta=2).reason_to_stop(number, known)) for number in (0, 1)] == [True, False]


def test_asha_lets_those_go_on_that_are_behind_by_little_of_what_was_learned():
    learned = trial(0, 0.1, 0.3, 0.9)  # 0.8 from the median of the first values
    others = [trial(1, 0.1), trial(2, 0.12), trial(3, 0.14)]
    fair = scheduler("asha", ACCURACY)
    assert [bool(fair.reason_to_stop(k, [learned, *others])) for k in (1, 2, 3)] == [False, False, False]
    slow = trial(4, 0.1, 0.11, 0.2)
    ahead = [trial(k, 0.1, 0.2, 0.3) for k in (5, 6, 7)]
    assert (
        fair.reason_to_stop(4, [learned, *ahead, slow])
        == "rung 30 of 100 steps: 0.2 is not among the best 1 of 5, nor within 0.08 of them"
    )
    assert not scheduler("asha", ACCURACY, {"margin": 0.9}).reason_to_stop(4, [learned, *ahead, slow])


def test_the_margin_of_a_falling_metric():
    known = [trial(0, 90, 50, 10), trial(1, 90, 50, 17), trial(2, 90, 50, 19)]
    fair = scheduler("asha", PERPLEXITY)
    assert [bool(fair.reason_to_stop(k, known)) for k in range(3)] == [False, False, True]


DISTINCT = st.lists(st.floats(0, 1), min_size=1, max_size=25, unique=True)


@settings(max_examples=40)
@given(values=DISTINCT, eta=st.integers(2, 5))
def test_asha_keeps_only_the_first_ones_where_each_is_worse_than_the_one_before(values, eta):
    stopped = stopped_in_order(sorted(values, reverse=True), asha(eta=eta))
    assert stopped == [False] * min(eta - 1, len(values)) + [True] * (len(values) - eta + 1)


@settings(max_examples=40)
@given(values=DISTINCT, eta=st.integers(2, 5))
def test_asha_would_keep_one_of_eta_of_those_that_are_there(values, eta):
    known = [trial(number, value) for number, value in enumerate(values)]
    kept = [one for one in known if not asha(eta=eta).reason_to_stop(one.number, known)]
    assert len(kept) == (len(values) // eta or len(values))
    assert min(one.curve[0].value for one in kept) >= sorted(values, reverse=True)[len(kept) - 1]


@given(values=DISTINCT)
def test_asha_never_stops_the_best_so_far(values):
    assert not any(stopped_in_order(sorted(values), asha()))
    assert not any(stopped_in_order(sorted(values), scheduler("asha", ACCURACY)))


@given(grace=st.floats(0.001, 0.999), eta=st.integers(2, 8), total=st.integers(1, 5000))
def test_rungs_lie_within_a_trial(grace, eta, total):
    """Judged at every step, a trial that is always behind is stopped from the grace on, first at the first rung."""
    first = math.ceil(round(grace * total, 6))
    ahead = [replace(trial(k), total_steps=total, curve=(Evaluation(step=max(1, first), value=1.0),)) for k in range(8)]
    behind = replace(ahead[0], number=8, curve=(Evaluation(step=max(1, first), value=0.5),))
    assert bool(asha(grace=grace, eta=eta).reason_to_stop(8, [*ahead, behind])) == (max(1, first) < total)


def median(**settings):
    return scheduler("median", ACCURACY, settings)


def test_median_says_why():
    known = [trial(k, 0.1, value, 0.9) for k, value in enumerate([0.5, 0.6, 0.7, 0.8, 0.9])]
    said = "step 20 of 100: best value 0.2 is worse than 0.4, the median of 5 trials' averages"
    assert median().reason_to_stop(9, [*known, trial(9, 0.2, 0.1)]) == said
    assert median().reason_to_stop(9, [*known, trial(9, 0.41, 0.1)]) == ""
    assert median().reason_to_stop(9, [*known, trial(9, 0.4, 0.1)]) == ""


def test_median_waits_for_trials_and_grace():
    known = [trial(k, 0.9, 0.9, 0.9) for k in range(4)]
    behind = trial(9, 0.1, 0.1)
    assert median().reason_to_stop(9, [*known, behind]) == ""
    assert median(min_trials=4).reason_to_stop(9, [*known, behind]) != ""
    assert median(min_trials=4, grace=0.3).reason_to_stop(9, [*known, behind]) == ""
    assert median(min_trials=5).reason_to_stop(9, [*known, trial(4, 0.9), behind]) == ""  # one is not that far


def test_median_counts_an_average_of_nought():
    assert median(min_trials=1).reason_to_stop(9, [trial(0, 0.0, 0.0), trial(9, -0.5, -0.5)]) != ""


def test_median_of_a_falling_metric():
    known = [trial(k, 2.0, 2.0) for k in range(5)]
    judge = scheduler("median", PERPLEXITY)
    assert judge.reason_to_stop(9, [*known, trial(9, 3.0, 2.5)]) != ""
    assert judge.reason_to_stop(9, [*known, trial(9, 3.0, 1.5)]) == ""


def test_median_leaves_out_what_is_no_number():
    known = [trial(k, math.nan, 0.5) for k in range(5)]
    assert "worse than 0.5, the median of 5" in median().reason_to_stop(9, [*known, trial(9, math.nan, 0.4)])
    assert median().reason_to_stop(9, [trial(9, math.nan)]) == "step 10 of 100: no value is a number"


def test_median_never_stops_a_trial_at_its_end():
    known = [trial(k, *[0.9] * 10) for k in range(5)]
    assert median().reason_to_stop(9, [*known, trial(9, *[0.1] * 10)]) == ""


@settings(max_examples=40)
@given(values=st.lists(st.floats(0, 1), min_size=6, max_size=20))
def test_median_never_stops_the_best(values):
    known = [trial(number, value) for number, value in enumerate(values)]
    best = max(range(len(values)), key=lambda number: values[number])
    assert median().reason_to_stop(best, known) == ""


@pytest.mark.parametrize("name", ["asha", "median"])
def test_infinite_values_are_no_error(name):
    known = [trial(k, value, value) for k, value in enumerate([math.inf, -math.inf, 0.5, math.nan, 1.0, 0.2])]
    assert all(isinstance(scheduler(name, ACCURACY).reason_to_stop(k, known), str) for k in range(6))


@pytest.mark.parametrize(
    ("name", "goal", "given_settings", "said"),
    [
        ("ash", ACCURACY, {}, r"^scheduler: unknown scheduler 'ash'; did you mean 'asha'\?$"),
        ("hyperband", ACCURACY, {}, r"^scheduler: unknown scheduler 'hyperband'; there is none, asha, median$"),
        ("asha", ACCURACY, {"eta": 1}, r"^scheduler\.eta: got 1, must be a whole number >= 2$"),
        ("asha", ACCURACY, {"grace": 1}, r"^scheduler\.grace: got 1, must be a number > 0 and < 1$"),
        ("median", ACCURACY, {"trials": 3}, r"^scheduler\.trials: unknown key; there is grace, min_trials$"),
        ("none", ACCURACY, {"eta": 3}, r"^scheduler\.eta: unknown key; it takes none$"),
        ("asha", Goal("accuracy", "max", "flops"), {}, r"^scheduler: asha looks at accuracy alone; with a second"),
    ],
)
def test_refusals(name, goal, given_settings, said):
    with pytest.raises(ConfigError, match=said):
        scheduler(name, goal, given_settings)


def test_two_objectives_without_a_scheduler():
    assert isinstance(scheduler("none", Goal("accuracy", "max", "seconds")), SCHEDULERS["none"])
