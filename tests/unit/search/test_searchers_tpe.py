"""Optuna's estimator behind our contract."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from search_trials import ACCURACY, BASIS, MIXED, NINE, PERPLEXITY, of_points, trial

from subquad.errors import UserError
from subquad.search.searcher import Goal
from subquad.search.searchers import TPE, searcher
from subquad.search.searchers.fresh import identity
from subquad.search.searchers.optuna_trials import fits
from subquad.search.trial import Trial
from subquad.space import Constraint, Dimension, Space

optuna = pytest.importorskip("optuna")

POINTS = [MIXED.draw(1, number) for number in range(30)]
RATE = "train.lr"


def high_rate(point) -> float:
    """Best at the top of the learning rates."""
    return math.log10(point[RATE])


def suggestions(known: list[Trial], goal: Goal = ACCURACY, seeds=range(12)) -> list[dict]:
    found = [searcher("tpe", MIXED, goal, seed).suggest(len(known), known) for seed in seeds]
    return [point for point in found if point is not None]


def test_the_start_is_random_search():
    known = of_points(POINTS[:2], high_rate)
    tpe, plain = (searcher(name, MIXED, ACCURACY, 0) for name in ("tpe", "random"))
    assert tpe.suggest(2, known) == plain.suggest(2, known)
    assert tpe.suggest(3, [*known, trial(2, 0.1, state="finished", point=POINTS[2])]) != plain.suggest(3, known)


def test_trials_without_a_value_do_not_end_the_start():
    known = of_points(POINTS[:6], high_rate, state="running")
    known += [trial(6 + k, state="failed", point=point) for k, point in enumerate(POINTS[6:12])]
    assert searcher("tpe", MIXED, ACCURACY, 0).suggest(12, known) == MIXED.draw(0, 12)


@pytest.mark.parametrize(("goal", "better_half"), [(ACCURACY, True), (PERPLEXITY, False)])
def test_it_goes_where_the_goal_is_better(goal, better_half):
    rates = [point[RATE] for point in suggestions(of_points(POINTS, high_rate), goal)]
    assert sum((rate > 1e-3) == better_half for rate in rates) >= 10


@pytest.mark.parametrize("sign", [1, -1])
def test_of_equal_values_the_lower_loss_is_better(sign):
    known = []
    for number, point in enumerate(POINTS):
        plain = trial(number, 0.5, state="finished", point=point)
        known.append(replace(plain, curve=(replace(plain.curve[0], loss=sign * high_rate(point)),)))
    assert sum((point[RATE] < 1e-3) == (sign == 1) for point in suggestions(known, seeds=range(8))) >= 7


def test_it_stays_away_from_infeasible_points():
    jacobi = [point for number in range(200) if (point := MIXED.draw(2, number))[BASIS.path] == "jacobi"][:15]
    known = of_points(POINTS[:15], lambda point: 0.5)
    refused = [trial(15 + k, state="infeasible", point=point) for k, point in enumerate(jacobi)]
    known = [one for one in known if one.point[BASIS.path] != "jacobi"] + refused
    assert sum(point[BASIS.path] == "jacobi" for point in suggestions(known, seeds=range(20))) <= 3


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_suggestions_at_one_time_differ(state):
    known = of_points(POINTS[:8], high_rate)
    source = searcher("tpe", MIXED, ACCURACY, 0)
    for number in range(8, 14):
        point = source.suggest(number, known)
        assert point is not None
        known.append(trial(number, state=state, point=point))
    assert len({identity(one.point) for one in known}) == 14


@pytest.mark.parametrize(("goal", "better_half"), [(ACCURACY, True), (PERPLEXITY, False)])
def test_pruned_trials_teach_by_their_curves(goal, better_half):
    known = [trial(k, high_rate(point), state="pruned", point=point) for k, point in enumerate(POINTS)]
    assert sum((point[RATE] > 1e-3) == better_half for point in suggestions(known, goal, range(8))) >= 7


def test_trials_that_run_count():
    known = of_points(POINTS[:12], high_rate)
    running = [trial(12 + k, point=point) for k, point in enumerate(suggestions(known, seeds=range(20, 23)))]
    sources = [searcher("tpe", MIXED, ACCURACY, seed) for seed in range(4)]
    assert any(one.suggest(15, known) != one.suggest(15, [*known, *running]) for one in sources)


def test_the_model_keeps_constraints():
    dims = (
        Dimension("mixer.params.order", "int", low=1, high=20),
        Dimension("backbone.params.ffn_dim", "int", low=1, high=20),
    )
    tight = Space("tight", dims, (Constraint("divides", tuple(dim.path for dim in dims)),), {})
    known = of_points([tight.draw(0, number) for number in range(6)], lambda point: point[dims[0].path])
    points = [searcher("tpe", tight, ACCURACY, seed).suggest(6, known) for seed in range(8)]
    assert all(point is not None and tight.keeps(point) for point in points)


@pytest.mark.parametrize("cost", ["seconds", "flops"])
def test_two_objectives(cost):
    """Where all are equally good, it goes where they are cheap."""
    goal = Goal("accuracy", "max", cost)
    known = [
        trial(k, 0.5, state="finished", point=point, **{cost: 1e3 * point[RATE]}) for k, point in enumerate(POINTS)
    ]
    known += [
        trial(30, 0.9, state="pruned", point=MIXED.draw(9, 0)),
        trial(31, 0.9, state="finished", point=MIXED.draw(9, 1)),
    ]
    assert sum(point[RATE] < 1e-3 for point in suggestions(known, goal)) >= 10


STATES = st.sampled_from(["waiting", "running", "finished", "pruned", "failed", "infeasible"])
VALUES = st.lists(st.floats() | st.just(0.5), max_size=3)


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(st.tuples(STATES, VALUES), max_size=15), seed=st.integers(0, 2**64 - 1), costly=st.booleans())
def test_whatever_is_known_the_point_is_one_of_the_space(rows, seed, costly):
    goal = Goal("accuracy", "max", "flops") if costly else ACCURACY
    known = [
        trial(k, *values, state=state, point=MIXED.draw(5, k), flops=1.0 + k) for k, (state, values) in enumerate(rows)
    ]
    point = searcher("tpe", MIXED, goal, seed, {"startup": 2}).suggest(len(known), known)
    assert point is not None
    assert fits(MIXED, point)
    assert MIXED.keeps(point)


def test_points_of_another_space_are_left_out():
    known = of_points(POINTS[:8], high_rate)
    source = searcher("tpe", MIXED, ACCURACY, 0)
    strange = [
        trial(8, 9.0, state="finished", point={**POINTS[8], RATE: 0.5}),
        trial(9, 9.0, state="finished", point={}),
    ]
    assert source.suggest(10, known) == source.suggest(10, [*known, *strange])


def test_no_warnings_no_log_and_no_global_random_numbers(caplog, capfd):
    optuna.logging.enable_propagation()
    before, level = random.getstate(), optuna.logging.get_verbosity()
    assert suggestions(of_points(POINTS[:8], high_rate), seeds=[0])  # warnings are errors here
    assert (caplog.records, capfd.readouterr()) == ([], ("", ""))
    assert (random.getstate(), optuna.logging.get_verbosity()) == (before, level)
    optuna.logging.disable_propagation()


def test_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UserError, match=r"^searcher tpe needs Optuna: pip install 'subquad\[tune\]'$"):
        searcher("tpe", NINE, ACCURACY, 0)


@pytest.mark.ci
def test_naming_searchers_does_not_import_optuna():
    names = "sys, subquad.search.searchers, subquad.search.schedulers"
    code = f"import {names}; print({{'optuna', 'torch', 'ray'}} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


SCRIPT = """
import json
from search_trials import ACCURACY, MIXED, of_points
from subquad.search.searchers import searcher
known = of_points([MIXED.draw(1, number) for number in range(12)], lambda point: point["train.lr"])
print(json.dumps(searcher("tpe", MIXED, ACCURACY, 4).suggest(12, known)))
"""


@pytest.mark.ci
@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_another_process_suggests_the_same(hash_seed):
    support = Path(__file__).resolve().parents[2] / "support"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(support)},
        capture_output=True,
        text=True,
        check=True,
    )
    known = of_points([MIXED.draw(1, number) for number in range(12)], lambda point: point[RATE])
    assert json.loads(done.stdout) == TPE(MIXED, ACCURACY, 4).suggest(12, known)
