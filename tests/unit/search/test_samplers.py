"""Optuna's samplers on trials of a folder: pure functions of what is known."""

from __future__ import annotations

import json
import math
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution
from search_trials import ACCURACY, BASIS, MIXED, NINE, PERPLEXITY, of_points, trial

from subquad.errors import ConfigError
from subquad.search.sampler import SAMPLERS, Sampler
from subquad.search.settings import Settings
from subquad.search.trial import Goal, Trial, identity, pareto
from subquad.space import Constraint, Dimension, Space, choice_of

NAMES = [pytest.param(name, marks=pytest.mark.ci) if name == "gp" else name for name in SAMPLERS]
MODELS = ["tpe", pytest.param("gp", marks=pytest.mark.ci)]
POINTS = [MIXED.draw(1, number) for number in range(30)]
RATE = "train.lr"
COSTLY = Goal("accuracy", "max", "flops")


def sequence(source: Sampler, count: int, start: Iterable[Trial] = ()) -> list[dict]:
    """Points of a serial search in which every trial finishes."""
    known = list(start)
    while len(known) < count and (point := source.suggest(len(known), known)) is not None:
        known.append(trial(len(known), float(len(known) % 3), state="finished", point=point))
    return [known_trial.point for known_trial in known]


def high_rate(point) -> float:
    """Best at the top of the learning rates."""
    return math.log10(point[RATE])


def suggestions(name: str, known: list[Trial], goal: Goal = ACCURACY, seeds=range(8)) -> list[dict]:
    found = [Sampler(name, MIXED, goal, seed).suggest(len(known), known) for seed in seeds]
    return [point for point in found if point is not None]


@pytest.mark.parametrize("name", NAMES)
def test_every_point_of_a_finite_space_comes_once(name):
    points = sequence(Sampler(name, NINE, ACCURACY, 0), 20)
    assert sorted(map(identity, points)) == sorted(map(identity, NINE.grid()))


@pytest.mark.parametrize("name", NAMES)
def test_choices_may_be_lists(name):
    options = [[0], [0, 2, 4], "0..4", None]
    space = Space("lists", (Dimension("mixers.0.layers", choice_of(options)), *NINE.dims[:1]))
    points = sequence(Sampler(name, space, ACCURACY, 0), 20)
    assert sorted(map(identity, points)) == sorted(map(identity, space.grid()))
    whole = sequence(Sampler(name, space, ACCURACY, 0), 8)
    written = json.loads(json.dumps(whole[:4]))
    known = [
        trial(number, float(number % 3), state="finished", point=point)
        for number, point in enumerate(written)
    ]
    assert sequence(Sampler(name, space, ACCURACY, 0), 8, known) == whole


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_is_another_order(name):
    assert sequence(Sampler(name, NINE, ACCURACY, 0), 9) != sequence(
        Sampler(name, NINE, ACCURACY, 1), 9
    )


@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("random", MIXED),
        ("tpe", MIXED),
        ("grid", NINE),
        pytest.param("gp", MIXED, marks=pytest.mark.ci),
    ],
)
@pytest.mark.parametrize("killed_at", [1, 6])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not(name, space, killed_at):
    whole = sequence(Sampler(name, space, ACCURACY, 3), 8)
    first = sequence(Sampler(name, space, ACCURACY, 3), killed_at)
    known = [
        trial(number, float(number % 3), state="finished", point=point)
        for number, point in enumerate(first)
    ]
    assert sequence(Sampler(name, space, ACCURACY, 3), 8, known) == whole


@given(seed=st.integers(0, 2**32 - 1), number=st.integers(0, 2**32))
def test_random_points_are_the_draws_of_the_space(seed, number):
    assert Sampler("random", MIXED, ACCURACY, seed).suggest(number, []) == MIXED.draw(seed, number)


def test_a_draw_that_was_tried_gives_way_in_a_space_that_has_others():
    drawn = MIXED.draw(0, 1)
    other = Sampler("random", MIXED, ACCURACY, 0).suggest(1, [trial(0, point=drawn)])
    assert other is not None
    assert identity(other) != identity(drawn)


def test_whole_fractions_are_the_same_point_and_truth_values_are_not():
    assert identity({"a": 1, "b": 2}) == identity({"b": 2, "a": 1.0})
    assert identity({"a": 1}) != identity({"a": True})


@pytest.mark.parametrize(("goal", "better_half"), [(ACCURACY, True), (PERPLEXITY, False)])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_goes_where_the_goal_is_better(name, goal, better_half):
    rates = [point[RATE] for point in suggestions(name, of_points(POINTS, high_rate), goal)]
    assert sum((rate > 1e-3) == better_half for rate in rates) >= 7


@pytest.mark.parametrize("name", MODELS)
def test_a_model_stays_away_from_infeasible_and_failed_points(name):
    jacobi = [
        point for number in range(200) if (point := MIXED.draw(2, number))[BASIS.path] == "jacobi"
    ][:15]
    known = of_points(POINTS[:15], lambda point: 0.5 + point[RATE])
    states = ["infeasible", "failed"]
    refused = [trial(15 + k, state=states[k % 2], point=point) for k, point in enumerate(jacobi)]
    known = [
        known_trial for known_trial in known if known_trial.point[BASIS.path] != "jacobi"
    ] + refused
    assert (
        sum(point[BASIS.path] == "jacobi" for point in suggestions(name, known, seeds=range(10)))
        <= 3
    )


@pytest.mark.parametrize("state", ["running", "waiting"])
@pytest.mark.parametrize("name", MODELS)
def test_suggestions_at_one_time_differ(name, state):
    known = of_points(POINTS[:8], high_rate)
    source = Sampler(name, MIXED, ACCURACY, 0)
    for number in range(8, 13):
        point = source.suggest(number, known)
        assert point is not None
        known.append(trial(number, state=state, point=point))
    assert len({identity(known_trial.point) for known_trial in known}) == 13


@pytest.mark.parametrize(("goal", "better_half"), [(ACCURACY, True), (PERPLEXITY, False)])
def test_pruned_trials_teach_the_estimator_by_their_curves(goal, better_half):
    known = [
        trial(k, high_rate(point), state="pruned", point=point) for k, point in enumerate(POINTS)
    ]
    assert (
        sum((point[RATE] > 1e-3) == better_half for point in suggestions("tpe", known, goal)) >= 7
    )


@pytest.mark.parametrize("name", NAMES)
def test_suggestions_keep_constraints(name):
    dims = (
        Dimension("mixer.params.order", IntDistribution(1, 12)),
        Dimension("backbone.params.ffn_dim", IntDistribution(1, 12)),
    )
    tight = Space("tight", dims, (Constraint("divides", tuple(dim.path for dim in dims)),), {})
    known = of_points(
        [tight.draw(0, number) for number in range(6)], lambda point: point[dims[0].path]
    )
    points = [Sampler(name, tight, ACCURACY, seed).suggest(6, known) for seed in range(6)]
    assert all(point is not None and tight.keeps(point) for point in points)


@pytest.mark.parametrize("cost", ["seconds", "flops"])
@pytest.mark.parametrize("name", MODELS)
def test_two_objectives(name, cost):
    """Where all are equally good, it goes where they are cheap."""
    goal = Goal("accuracy", "max", cost)
    known = [
        trial(k, 0.5, state="finished", point=point, **{cost: 1e3 * point[RATE]})
        for k, point in enumerate(POINTS[:20])
    ]
    known += [
        trial(20, 0.9, state="pruned", point=MIXED.draw(9, 0)),
        trial(21, 0.9, state="finished", point=MIXED.draw(9, 1)),
    ]
    assert sum(point[RATE] < 1e-3 for point in suggestions(name, known, goal)) >= 6


STATES = st.sampled_from(["waiting", "running", "finished", "pruned", "failed", "infeasible"])
VALUES = st.lists(st.floats() | st.just(0.5), max_size=3)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(STATES, VALUES), max_size=15),
    seed=st.integers(0, 2**32 - 1),
    costly=st.booleans(),
)
def test_whatever_is_known_the_point_is_one_of_the_space(rows, seed, costly):
    goal = COSTLY if costly else ACCURACY
    known = [
        trial(k, *values, state=state, point=MIXED.draw(5, k), flops=1.0 + k)
        for k, (state, values) in enumerate(rows)
    ]
    point = Sampler("tpe", MIXED, goal, seed).suggest(len(known), known)
    assert point is not None
    assert MIXED.holds(point)
    assert MIXED.keeps(point)


def test_points_of_another_space_are_left_out():
    known = of_points(POINTS[:8], high_rate)
    source = Sampler("tpe", MIXED, ACCURACY, 0)
    strange = [
        trial(8, 9.0, state="finished", point={**POINTS[8], RATE: 0.5}),
        trial(9, 9.0, state="finished", point={}),
    ]
    assert source.suggest(10, known) == source.suggest(10, [*known, *strange])


@pytest.mark.parametrize("name", NAMES)
def test_given_points_come_first_and_what_they_leave_out_is_drawn(name):
    space = NINE if name == "grid" else MIXED
    given = [{"mixer.params.order": 2}, {RATE: 1e-3, "mixer.params.order": 2}]
    source = Sampler(name, space, ACCURACY, 0, first=given)
    points = sequence(source, 3)
    assert [
        {key: point[key] for key in given_point}
        for given_point, point in zip(given, points, strict=False)
    ] == given
    assert all(space.holds(point) for point in points)


def test_candidates_have_samplers_of_their_own():
    known = of_points(POINTS[:8], high_rate)
    first, second = (
        Sampler("tpe", MIXED, ACCURACY, 0, candidate=label) for label in ("agf", "cur")
    )
    assert first.suggest(8, known) != second.suggest(8, known)


def test_no_warnings_no_log_and_no_global_random_numbers(caplog, capfd):
    optuna.logging.enable_propagation()
    before, level = random.getstate(), optuna.logging.get_verbosity()
    # warnings are errors here
    assert suggestions("tpe", of_points(POINTS[:8], high_rate), seeds=[0])
    assert (caplog.records, capfd.readouterr()) == ([], ("", ""))
    assert (random.getstate(), optuna.logging.get_verbosity()) == (before, level)
    optuna.logging.disable_propagation()


SCRIPT = """
import json
from search_trials import ACCURACY, MIXED, of_points
from subquad.search.settings import Settings
from subquad.search.sampler import Sampler
known = of_points([MIXED.draw(1, number) for number in range(12)], lambda point: point["train.lr"])
print(json.dumps(Sampler("tpe", MIXED, ACCURACY, 4).suggest(12, known)))
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
    assert json.loads(done.stdout) == Sampler("tpe", MIXED, ACCURACY, 4).suggest(12, known)


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        ("sampler", "tpo", "must be one of random, grid, tpe, gp; did you mean 'tpe'?"),
        ("sampler", "bohb-3", "must be one of random, grid, tpe, gp"),
        ("pruner", "ahsa", "must be one of none, median, asha; did you mean 'asha'?"),
    ],
)
def test_names_that_are_none(option, name, said):
    with pytest.raises(ConfigError, match=rf"^--{option}: got '{name}', {re.escape(said)}$"):
        Settings("optimizer", **{option: name})


def test_a_grid_over_a_continuous_dimension():
    message = r"mixer\.params\.a: uniform has no grid \(and 1 more\); use choice or int"
    with pytest.raises(ConfigError, match=message):
        Sampler("grid", MIXED, ACCURACY, 0)


def test_a_large_grid_is_walked():
    wide = Space("wide", (Dimension("train.batch_size", IntDistribution(1, 20_000)),), (), {})
    assert len({identity(point) for point in sequence(Sampler("grid", wide, ACCURACY, 0), 4)}) == 4


def test_a_continuous_space_is_never_used_up():
    space = Space("one", (Dimension(RATE, FloatDistribution(1e-4, 1e-2, log=True)),), (), {})
    assert (
        len({identity(point) for point in sequence(Sampler("random", space, ACCURACY, 0), 30)})
        == 30
    )


def test_the_front_holds_what_nothing_beats_in_both():
    rows = [(0.9, 50.0), (0.8, 10.0), (0.7, 20.0), (0.9, 60.0), (0.95, 70.0), (0.8, 10.0)]
    trials = [
        trial(k, value, state="finished", flops=flops) for k, (value, flops) in enumerate(rows)
    ]
    assert [member.number for member in pareto(trials, COSTLY)] == [1, 0, 4]


def test_the_front_of_a_falling_metric():
    trials = [
        trial(k, value, state="finished", seconds=s)
        for k, (value, s) in enumerate([(3, 1), (2, 2), (4, 3)])
    ]
    assert [member.number for member in pareto(trials, Goal("perplexity", "min", "seconds"))] == [
        0,
        1,
    ]


def test_the_front_leaves_out_what_cannot_be_compared():
    trials = [
        trial(0, 0.9, state="pruned", flops=1.0),
        trial(1, math.nan, state="finished", flops=1.0),
        trial(2, 0.9, state="finished"),
        trial(3, 0.5, state="finished", flops=9.0),
    ]
    assert [member.number for member in pareto(trials, COSTLY)] == [3]


def test_a_front_needs_two_objectives():
    with pytest.raises(ValueError, match="a front needs a goal with a cost, seconds or flops"):
        pareto([], PERPLEXITY)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=12))
def test_every_trial_is_on_the_front_or_behind_one_of_it(rows):
    trials = [trial(k, float(v), state="finished", flops=float(c)) for k, (v, c) in enumerate(rows)]
    front = [rows[member.number] for member in pareto(trials, COSTLY)]
    assert all(any(v >= value and c <= cost for v, c in front) for value, cost in rows)
    assert all(
        not (v >= value and c <= cost)
        for value, cost in front
        for v, c in front
        if (v, c) != (value, cost)
    )
