"""Which trials Optuna's pruners end, asked after each evaluation, and what is said of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import optuna
import pytest
from optuna.pruners import BasePruner, MedianPruner, SuccessiveHalvingPruner
from search_trials import ACCURACY, NONE, PERPLEXITY, studied, trial

from subquad.errors import ConfigError
from subquad.search.journal import Trials, quiet
from subquad.search.pruner import PRUNERS, Pruner
from subquad.search.sampler import Sampler
from subquad.search.trial import Evaluation, Goal

SAMPLER = Sampler("random", NONE, 0, first=[{}] * 1000)


class History:
    """Trials of 100 steps that are evaluated as they are told to be."""

    def __init__(self, pruner: Pruner, goal: Goal = ACCURACY):
        self.pruner = pruner
        self.trials: Trials = studied([], goal=goal)

    def begin(self, **more) -> int:
        number = len(self.trials.known)
        self.trials.ask(SAMPLER)
        self.trials.record(trial(number, **more))
        return number

    def evaluated(self, number: int, value: float, step: int, run: int = 0) -> str:
        evaluation = Evaluation(step=step, value=value)
        return self.trials.reason_to_stop(self.pruner, number, run, evaluation)

    def run(self, *values: float, every: int = 10, state="finished") -> list[int]:
        """A whole trial. Returns the steps at which it should have been ended."""
        number = self.begin()
        steps = [every * (place + 1) for place in range(len(values))]
        stops = [
            step
            for step, value in zip(steps, values, strict=True)
            if self.evaluated(number, value, step)
        ]
        self.end(number, state, values[-1])
        return stops

    def end(self, number: int, state, value: float) -> None:
        best = Evaluation(step=100, value=value)
        self.trials.record(replace(self.trials.known[number], state=state, best=best))


def asha(goal: Goal = ACCURACY, **settings) -> History:
    return History(Pruner("asha", goal, settings), goal)


def median(goal: Goal = ACCURACY, **settings) -> History:
    return History(Pruner("median", goal, settings), goal)


def test_none_ends_nothing():
    assert History(Pruner("none", ACCURACY)).run(math.nan) == []


def test_it_says_why():
    history = asha()
    for value in [90, 85, 80, 75, 72]:
        history.run(value)
    number = history.begin()
    assert history.evaluated(number, 71.2, 10) == "asha: accuracy 71.2 at step 10 of 100"


def test_asha_judges_at_rungs_only():
    history = asha()
    for _ in range(5):
        history.run(*[0.9] * 10)
    judged = []
    for reached in range(1, 10):
        number = history.begin()
        before = [history.evaluated(number, 0.95, 10 * step) for step in range(1, reached)]
        assert not any(before)
        if history.evaluated(number, 0.5, 10 * reached):
            judged.append(reached)
        history.end(number, "failed", 0.0)
    assert judged == [1, 3, 9]


def test_asha_judges_by_the_value_at_the_rung_not_by_a_later_one():
    history = asha()
    for _ in range(5):
        history.run(0.1, 0.99)
    assert not history.evaluated(history.begin(), 0.5, 10)


def test_asha_judges_the_first_evaluation_after_a_rung():
    history = asha()
    for _ in range(5):
        history.run(*[0.9] * 5)
    assert history.evaluated(history.begin(), 0.5, 40) == "asha: accuracy 0.5 at step 40 of 100"


@pytest.mark.parametrize("make", [asha, median])
def test_equal_fractions_of_trials_with_other_steps_are_compared(make):
    history = make(**({"n_warmup_steps": 0} if make is median else {}))
    for _ in range(5):
        number = history.begin(total_steps=10)
        assert not history.evaluated(number, 0.9, 1)
        history.end(number, "finished", 0.9)
    assert history.evaluated(history.begin(), 0.5, 10)


def test_the_best_of_those_at_a_rung_go_on():
    def stopped(values: Sequence[float], goal: Goal = ACCURACY) -> list[bool]:
        history = asha(goal)
        return [bool(history.run(value)) for value in values]

    assert stopped([1, 2, 3, 4, 5, 6]) == [False] * 6
    assert stopped([6, 5, 4, 3, 2, 1]) == [False, True, True, True, True, True]
    assert stopped([1, 2, 3], PERPLEXITY) == [False, True, True]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_a_number_does_not_pass_a_rung(value):
    history = asha()
    for _ in range(3):
        history.run(*[0.5] * 9)
    assert history.evaluated(history.begin(), value, 10)


def test_the_median_of_finished_trials():
    def ended(goal: Goal, value: float, count: int = 5, **settings) -> bool:
        history = median(goal, **settings)
        for place in range(count):
            history.run(0.1 * place, 0.1 * place)
        number = history.begin()
        history.evaluated(number, value, 10)
        return bool(history.evaluated(number, value, 20))

    assert ended(ACCURACY, 0.15)
    assert not ended(ACCURACY, 0.25)
    assert ended(PERPLEXITY, 0.25)
    assert not ended(ACCURACY, 0.0, count=4), "too few"
    assert not ended(ACCURACY, 0.15, n_warmup_steps=30), "before the warm-up is over"


@pytest.mark.parametrize("state", ["failed", "infeasible"])
def test_the_median_waits_for_trials_that_finished(state):
    history = median(n_startup_trials=2)
    history.run(0.9, 0.9)
    for _ in range(5):
        history.end(history.begin(), state, 0.9)
    assert not history.evaluated(history.begin(), 0.1, 20)
    history.run(0.9, 0.9)
    assert history.evaluated(history.begin(), 0.1, 20)


@pytest.mark.parametrize("make", [asha, median])
def test_seeds_are_one_curve_and_held_against_the_same_seed_of_others(make):
    """Half of a trial of two seeds is done when the first one ended."""
    history = make(min_resource=50) if make is asha else make(n_warmup_steps=50)
    for _ in range(5):
        number = history.begin(seeds=(0, 1))
        assert not history.evaluated(number, 0.9, 20)
        assert not history.evaluated(number, 0.1, 20, run=1)
        history.end(number, "finished", 0.5)
    fine = history.begin(seeds=(0, 1))
    assert not history.evaluated(fine, 0.2, 20)
    assert not history.evaluated(fine, 0.2, 20, run=1)
    bad = history.begin(seeds=(0, 1))
    history.evaluated(bad, 0.05, 20)
    assert history.evaluated(bad, 0.05, 20, run=1)


@pytest.mark.parametrize("make", [asha, median])
def test_asked_again_of_an_evaluation_it_says_the_same(make):
    """As a run does that went on from an earlier checkpoint; other trials have ended since."""
    history = make(**({"n_startup_trials": 2, "n_warmup_steps": 0} if make is median else {}))
    history.run(0.9)
    history.run(0.8)
    good, bad = history.begin(), history.begin()
    before = [history.evaluated(number, value, 10) for number, value in ((good, 0.85), (bad, 0.1))]
    for value in (0.95, 0.99, 0.01, 0.02):
        history.run(value)
    again = [history.evaluated(number, value, 10) for number, value in ((good, 0.85), (bad, 0.1))]
    assert again == before
    assert bool(before[1])


def optunas(name: str, settings: dict[str, int]) -> BasePruner:
    return {"median": MedianPruner, "asha": SuccessiveHalvingPruner}[name](**settings)


@pytest.mark.parametrize("every", [5, 10, 40])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("goal", [ACCURACY, PERPLEXITY], ids=["max", "min"])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("median", {"n_startup_trials": 2, "n_warmup_steps": 0}),
        ("asha", {"min_resource": 10, "reduction_factor": 3}),
    ],
)
def test_verdicts_are_those_of_optuna_on_a_search_of_its_own(name, given, goal, seed, every):
    draw = Random(seed)
    history = History(Pruner(name, goal, given), goal)
    study = optuna.create_study(direction=goal.directions[0], pruner=optunas(name, given))
    verdicts = set()
    for _ in range(20):
        number, other = history.begin(), study.ask()
        for step in range(every, 100, every):
            value = math.nan if draw.random() < 0.05 else draw.choice([0.25, 0.5, draw.random()])
            with quiet():
                other.report(value, step)
                expected = other.should_prune()
            assert bool(history.evaluated(number, value, step)) == expected
            verdicts.add(expected)
        history.end(number, "finished", 0.5)
        study.tell(other, 0.5)
    assert verdicts == {False, True}


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
    assert name in PRUNERS
    with pytest.raises(ConfigError, match=said):
        Pruner(name, goal, settings=settings)
