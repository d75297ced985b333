"""Optuna's Gaussian process behind our contract."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_trials import ACCURACY, BASIS, MIXED, NINE, PERPLEXITY, curve, of_points, trial

from subquad.errors import ConfigError, UserError
from subquad.search.searcher import Goal
from subquad.search.searchers import GP, searcher
from subquad.search.searchers.fresh import identity
from subquad.search.searchers.gp import expected
from subquad.search.searchers.optuna_trials import fits
from subquad.search.trial import Trial
from subquad.space import Dimension, Space

pytest.importorskip("optuna")

POINTS = [MIXED.draw(1, number) for number in range(12)]
RATE = "train.lr"
LINE = Space("line", (Dimension("train.lr", "choice", values=(0.3, 1e-4, 0.01, 1e-3, 0.1, 1.0, 1e-5, 3.0)),), (), {})
"""A list of numbers out of order."""


def high_rate(point) -> float:
    return math.log10(point[RATE])


def suggestions(known: list[Trial], goal: Goal = ACCURACY, seeds=range(4), space: Space = MIXED) -> list[dict]:
    found = [searcher("gp", space, goal, seed).suggest(len(known), known) for seed in seeds]
    return [point for point in found if point is not None]


def test_the_start_is_random_search():
    known = of_points(POINTS[:3], high_rate)
    model, plain = (searcher(name, MIXED, ACCURACY, 0) for name in ("gp", "random"))
    assert model.suggest(3, known) == plain.suggest(3, known)
    assert model.suggest(4, [*known, trial(3, 0.1, state="finished", point=POINTS[3])]) != plain.suggest(4, known)


@pytest.mark.parametrize(("goal", "better_half"), [(ACCURACY, True), (PERPLEXITY, False)])
def test_it_goes_where_the_goal_is_better(goal, better_half):
    rates = [point[RATE] for point in suggestions(of_points(POINTS, high_rate), goal)]
    assert sum((rate > 1e-3) == better_half for rate in rates) >= 3


def test_it_knows_the_order_of_numbers_in_a_list():
    """The best is between those tried, where a model without order cannot know it."""
    tried = [{RATE: rate} for rate in (1e-5, 1e-3, 0.1, 1.0, 3.0)]
    known = of_points(tried, lambda point: -abs(math.log10(point[RATE]) + 2))
    assert [point[RATE] for point in suggestions(known, space=LINE)].count(0.01) >= 3


def test_it_stays_away_from_infeasible_points():
    jacobi = [point for number in range(100) if (point := MIXED.draw(2, number))[BASIS.path] == "jacobi"][:8]
    known = of_points([point for point in POINTS if point[BASIS.path] != "jacobi"], high_rate)
    refused = [trial(len(known) + k, state="infeasible", point=point) for k, point in enumerate(jacobi)]
    assert sum(point[BASIS.path] == "jacobi" for point in suggestions([*known, *refused])) <= 1


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_suggestions_at_one_time_differ(state):
    known = of_points(POINTS[:5], high_rate)
    source = searcher("gp", MIXED, ACCURACY, 0)
    for number in range(5, 9):
        point = source.suggest(number, known)
        assert point is not None
        known.append(trial(number, state=state, point=point))
    assert len({identity(one.point) for one in known}) == 9


def test_pruned_trials_count_by_where_they_would_have_got():
    finished = [
        replace(trial(k), state="finished", curve=curve(0.2, 0.4, last), steps=30) for k, last in enumerate([0.8, 0.9])
    ]
    known = [
        *(replace(one, total_steps=30) for one in finished),
        replace(trial(2), state="pruned", curve=curve(0.2, 0.1), steps=20, total_steps=30),
        replace(trial(3), state="pruned", curve=curve(0.7), steps=10, total_steps=30),
        trial(4, state="failed"),
        trial(5, 0.9),
    ]
    assert expected(known, ACCURACY) == pytest.approx({0: -0.8, 1: -0.9, 2: -0.65, 3: -0.85})


def test_one_objective_only():
    with pytest.raises(ConfigError, match=r"^searcher: gp has one objective; with --cost use tpe$"):
        searcher("gp", NINE, Goal("accuracy", "max", "flops"), 0)


def test_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"^searcher gp needs Optuna: pip install 'subquad\[tune\]'$"):
        searcher("gp", NINE, ACCURACY, 0)


STATES = st.sampled_from(["waiting", "running", "finished", "pruned", "failed", "infeasible"])
VALUES = st.lists(st.floats() | st.just(0.5), max_size=3)


@settings(max_examples=12, deadline=None)
@given(rows=st.lists(st.tuples(STATES, VALUES), max_size=8), seed=st.integers(0, 2**64 - 1))
def test_whatever_is_known_the_point_is_one_of_the_space(rows, seed):
    known = [trial(k, *values, state=state, point=MIXED.draw(5, k)) for k, (state, values) in enumerate(rows)]
    point = searcher("gp", MIXED, ACCURACY, seed, {"startup": 1}).suggest(len(known), known)
    assert point is not None
    assert fits(MIXED, point)
    assert MIXED.keeps(point)


SCRIPT = """
import json
from search_trials import ACCURACY, MIXED, of_points
from subquad.search.searchers import searcher
known = of_points([MIXED.draw(1, number) for number in range(12)], lambda point: point["train.lr"])
print(json.dumps(searcher("gp", MIXED, ACCURACY, 4).suggest(12, known)))
"""


@pytest.mark.ci
def test_another_process_suggests_the_same():
    support = Path(__file__).resolve().parents[2] / "support"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(support)},
        capture_output=True,
        text=True,
        check=True,
    )
    known = of_points(POINTS, lambda point: point[RATE])
    assert json.loads(done.stdout) == GP(MIXED, ACCURACY, 4).suggest(12, known)
