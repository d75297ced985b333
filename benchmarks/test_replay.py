"""Searches replayed on recorded curves."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from learning_curves import STEPS, synthetic_table
from replay import median_gap, regrets, replay

from subquad.search.pruner import PRUNERS, Pruner
from subquad.search.sampler import Sampler

TABLE = synthetic_table(0)
MAKE = {name: partial(Sampler, name) for name in ("random", "tpe")}
RULES = {name: partial(Pruner, name) for name in PRUNERS}


def run(budget: int, rule: str = "none", workers: int = 1):
    return replay(TABLE, MAKE["random"](TABLE.space, 0), RULES[rule](TABLE.goal), budget, workers)


def test_the_whole_grid_leaves_no_regret():
    trials = run(TABLE.steps)
    assert len(trials) == 36
    assert all(trial.state == "finished" for trial in trials)
    assert TABLE.regret(trials) == 0
    assert max(TABLE.regret([trial]) for trial in trials) > 0.1


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("rule", RULES)
def test_no_more_than_the_budget_is_used(rule, workers):
    budget = 3 * STEPS + 50
    trials = run(budget, rule, workers)
    used = sum(trial.steps for trial in trials)
    assert budget - 100 < used <= budget
    assert all(trial.identity in TABLE.curves for trial in trials)


def test_a_scheduler_sees_more_points():
    trials = run(5 * STEPS, "asha")
    assert len(trials) > 10
    assert {trial.state for trial in trials} >= {"finished", "pruned"}


def test_without_a_finished_trial_what_there_is_counts():
    (only,) = run(STEPS // 2)
    assert only.state == "running"
    assert TABLE.regret([only]) > 0


def test_the_gap_between_medians():
    rng = np.random.Generator(np.random.Philox(0))
    worse = rng.uniform(0.1, 0.2, 100)
    gap, low, high = median_gap(worse - 0.05, worse)
    assert low < gap < high < 0
    assert gap == pytest.approx(-0.05)


@pytest.mark.extended
def test_model_and_early_stopping_beat_random_search():
    """A quarter of the grid's steps, 100 seeds over 20 tables; 2 to 4 minutes on one core."""
    tables = [synthetic_table(seed) for seed in range(20)]
    found = regrets(tables, MAKE, RULES, range(100))
    base = found["random", "none"]
    for pair in [("random", "asha"), ("tpe", "asha"), ("tpe", "median")]:
        assert median_gap(found[pair], base)[2] < 0, pair
