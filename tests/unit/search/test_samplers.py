"""Which points come: a function of the trials that are known."""

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
from typing import get_args

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution, IntDistribution
from search_trials import ACCURACY, BASIS, MIXED, NINE, PERPLEXITY, of_points, studied, trial

from subquad.errors import ConfigError
from subquad.search.pruner import Pruner
from subquad.search.sampler import Sampler
from subquad.search.settings import SamplerName, Settings
from subquad.search.trial import Evaluation, Goal, Trial, identity, pareto
from subquad.space import Constraint, Dimension, Space, choice_of

NAMES = [
    pytest.param(name, marks=pytest.mark.ci) if name == "gp" else name
    for name in get_args(SamplerName)
]
LEARNING = ["tpe", pytest.param("gp", marks=pytest.mark.ci)]
POINTS = [MIXED.draw(1, number) for number in range(30)]
RATE = "train.lr"
COSTLY = Goal("accuracy", "max", "flops")


def sequence(
    name: SamplerName, space: Space, count: int, seed: int = 0, known: Iterable[Trial] = (), **more
) -> list[dict]:
    """Points of a serial search in which every trial finishes."""
    trials = studied(known, space)
    sampler = Sampler(name, space, seed, **more)
    while len(trials.known) < count and (point := trials.ask(sampler)) is not None:
        number = len(trials.known)
        trials.record(trial(number, float(number % 3), state="finished", point=point))
    return [each.point for each in trials.known]


def finished(points: Iterable[dict]) -> list[Trial]:
    """What `sequence` has of its first points, as JSON would give them back."""
    return [
        trial(number, float(number % 3), state="finished", point=point)
        for number, point in enumerate(json.loads(json.dumps(list(points))))
    ]


def high_rate(point) -> float:
    """Best at the top of the learning rates."""
    return math.log10(point[RATE])


def suggestions(name: str, known: list[Trial], goal: Goal = ACCURACY, seeds=range(8)) -> list[dict]:
    found = [studied(known, MIXED, goal).ask(Sampler(name, MIXED, seed)) for seed in seeds]
    return [point for point in found if point is not None]


@pytest.mark.parametrize("name", NAMES)
def test_every_point_of_a_finite_space_comes_once(name):
    points = sequence(name, NINE, 20)
    assert sorted(map(identity, points)) == sorted(map(identity, NINE.grid()))


@pytest.mark.parametrize("name", NAMES)
def test_choices_may_be_lists(name):
    options = [[0], [0, 2, 4], "0..4", None]
    space = Space("lists", (Dimension("mixers.0.layers", choice_of(options)), *NINE.dims[:1]))
    points = sequence(name, space, 20)
    assert sorted(map(identity, points)) == sorted(map(identity, space.grid()))
    assert sequence(name, space, 8, known=finished(points[:4])) == points[:8]


@pytest.mark.parametrize("name", NAMES)
def test_another_seed_is_another_order(name):
    assert sequence(name, NINE, 9) != sequence(name, NINE, 9, seed=1)


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
    whole = sequence(name, space, 8, seed=3)
    assert sequence(name, space, 8, seed=3, known=finished(whole[:killed_at])) == whole


@given(seed=st.integers(0, 2**32 - 1), number=st.integers(0, 5))
def test_random_points_are_the_draws_of_the_space(seed, number):
    points = sequence("random", MIXED, number + 1, seed)
    assert points[number] == MIXED.draw(seed, number)


def test_a_draw_that_was_tried_gives_way_in_a_space_that_has_others():
    drawn = MIXED.draw(0, 1)
    (_, other) = sequence("random", MIXED, 2, known=finished([drawn]))
    assert identity(other) != identity(drawn)


def test_whole_fractions_are_the_same_point_and_truth_values_are_not():
    assert identity({"a": 1, "b": 2}) == identity({"b": 2, "a": 1.0})
    assert identity({"a": 1}) != identity({"a": True})


@pytest.mark.parametrize(("goal", "better_half"), [(ACCURACY, True), (PERPLEXITY, False)])
@pytest.mark.parametrize("name", LEARNING)
def test_a_model_goes_where_the_goal_is_better(name, goal, better_half):
    rates = [point[RATE] for point in suggestions(name, of_points(POINTS, high_rate), goal)]
    assert sum((rate > 1e-3) == better_half for rate in rates) >= 7


@pytest.mark.parametrize("name", LEARNING)
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


@pytest.mark.parametrize("name", LEARNING)
def test_suggestions_at_one_time_differ(name):
    trials = studied(of_points(POINTS[:8], high_rate), MIXED)
    sampler = Sampler(name, MIXED, 0)
    for number in range(8, 13):
        point = trials.ask(sampler)
        assert point is not None
        trials.record(trial(number, point=point))
    assert len({each.identity for each in trials.known}) == 13


@pytest.mark.parametrize(("goal", "better_half"), [(ACCURACY, True), (PERPLEXITY, False)])
def test_pruned_trials_teach_the_estimator_by_their_curves(goal, better_half):
    rates = []
    for seed in range(8):
        trials = studied([], MIXED, goal)
        sampler = Sampler("tpe", MIXED, seed, first=POINTS)
        for number, point in enumerate(POINTS):
            assert trials.ask(sampler) == point
            trials.record(trial(number, point=point))
            evaluation = Evaluation(step=10, value=high_rate(point))
            trials.reason_to_stop(Pruner("none", goal), number, 0, evaluation)
            trials.record(trial(number, high_rate(point), state="pruned", point=point))
        rates.append((trials.ask(sampler) or {})[RATE])
    assert sum((rate > 1e-3) == better_half for rate in rates) >= 7


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
    points = [studied(known, tight).ask(Sampler(name, tight, seed)) for seed in range(6)]
    assert all(point is not None and tight.keeps(point) for point in points)


@pytest.mark.parametrize("cost", ["seconds", "flops"])
@pytest.mark.parametrize("name", LEARNING)
def test_two_objectives(name, cost):
    """Where all are equally good, it goes where they are cheap."""
    goal = Goal("accuracy", "max", cost)
    known = [
        trial(k, 0.5, state="finished", point=point, **{cost: 1e3 * point[RATE]})
        for k, point in enumerate(POINTS[:20])
    ]
    known.append(trial(20, 0.9, state="finished", point=MIXED.draw(9, 1)))
    assert sum(point[RATE] < 1e-3 for point in suggestions(name, known, goal)) >= 6


STATES = st.sampled_from(["running", "finished", "pruned", "failed", "infeasible"])
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
    point = studied(known, MIXED, goal).ask(Sampler("tpe", MIXED, seed))
    assert point is not None
    assert MIXED.holds(point)
    assert MIXED.keeps(point)


@pytest.mark.parametrize("name", NAMES)
def test_given_points_come_first_and_what_they_leave_out_is_drawn(name):
    space = NINE if name == "grid" else MIXED
    given = [{"mixer.params.order": 2}, {RATE: 1e-3, "mixer.params.order": 2}]
    points = sequence(name, space, 3, first=given)
    assert [
        {key: point[key] for key in given_point}
        for given_point, point in zip(given, points, strict=False)
    ] == given
    assert all(space.holds(point) for point in points)


def test_candidates_have_samplers_of_their_own():
    known = of_points(POINTS[:8], high_rate)
    first, second = (
        studied(known, MIXED).ask(Sampler("tpe", MIXED, 0, candidate=label))
        for label in ("agf", "cur")
    )
    assert first != second


@pytest.mark.parametrize("name", NAMES)
def test_a_point_that_was_not_begun_is_asked_for_again(name):
    """As where a budget has no room for it until another trial has ended."""
    space = NINE if name == "grid" else MIXED
    trials, sampler = studied([], space), Sampler(name, space, 0)
    for number in range(6):
        point = trials.ask(sampler)
        assert point is not None
        assert trials.ask(sampler) == point
        assert len(trials.known) == number
        trials.record(trial(number, float(number), state="finished", point=point))


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
from search_trials import MIXED, of_points, studied
from subquad.search.sampler import Sampler
known = of_points([MIXED.draw(1, number) for number in range(12)], lambda point: point["train.lr"])
print(json.dumps(studied(known, MIXED).ask(Sampler("tpe", MIXED, 4))))
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
    assert json.loads(done.stdout) == studied(known, MIXED).ask(Sampler("tpe", MIXED, 4))


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
        Sampler("grid", MIXED, 0)


def test_a_large_grid_is_walked():
    wide = Space("wide", (Dimension("train.batch_size", IntDistribution(1, 20_000)),), (), {})
    assert len({identity(point) for point in sequence("grid", wide, 4)}) == 4


def test_a_continuous_space_is_never_used_up():
    space = Space("one", (Dimension(RATE, FloatDistribution(1e-4, 1e-2, log=True)),), (), {})
    assert len(set(map(identity, sequence("random", space, 30)))) == 30


def test_the_front_holds_what_nothing_beats_in_both():
    rows = [(0.9, 50.0), (0.8, 10.0), (0.7, 20.0), (0.9, 60.0), (0.95, 70.0), (0.8, 10.0)]
    trials = [
        trial(k, value, state="finished", flops=flops) for k, (value, flops) in enumerate(rows)
    ]
    assert [member.number for member, _ in pareto(trials, COSTLY)] == [1, 0, 4]


def test_the_front_of_a_falling_metric():
    trials = [
        trial(k, value, state="finished", seconds=s)
        for k, (value, s) in enumerate([(3, 1), (2, 2), (4, 3)])
    ]
    assert [
        member.number for member, _ in pareto(trials, Goal("perplexity", "min", "seconds"))
    ] == [
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
    assert [member.number for member, _ in pareto(trials, COSTLY)] == [3]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=12))
def test_every_trial_is_on_the_front_or_behind_one_of_it(rows):
    trials = [trial(k, float(v), state="finished", flops=float(c)) for k, (v, c) in enumerate(rows)]
    front = [rows[member.number] for member, _ in pareto(trials, COSTLY)]
    assert all(any(v >= value and c <= cost for v, c in front) for value, cost in rows)
    assert all(
        not (v >= value and c <= cost)
        for value, cost in front
        for v, c in front
        if (v, c) != (value, cost)
    )
