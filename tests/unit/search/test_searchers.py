"""Random and grid searchers, names and settings, fronts."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from search_trials import ACCURACY, MIXED, NINE, PERPLEXITY, of_points, trial

from subquad.errors import ConfigError
from subquad.search.objective import pareto
from subquad.search.searcher import Goal, Searcher
from subquad.search.searchers import SEARCHERS, searcher
from subquad.search.searchers.fresh import identity
from subquad.search.trial import State, Trial
from subquad.space import Dimension, Space

FINITE = list(SEARCHERS)


def sequence(source: Searcher, count: int, start: Iterable[Trial] = ()) -> list[dict]:
    """Points of a serial search in which every trial finishes."""
    known = list(start)
    while len(known) < count and (point := source.suggest(len(known), known)) is not None:
        known.append(trial(len(known), float(len(known) % 3), state="finished", point=point))
    return [one.point for one in known]


@pytest.mark.parametrize("name", FINITE)
def test_every_point_of_a_finite_space_comes_once(name):
    points = sequence(searcher(name, NINE, ACCURACY, 0), 20)
    assert sorted(map(identity, points)) == sorted(map(identity, NINE.grid()))


@pytest.mark.parametrize("name", FINITE)
def test_another_seed_is_another_order(name):
    assert sequence(searcher(name, NINE, ACCURACY, 0), 9) != sequence(searcher(name, NINE, ACCURACY, 1), 9)


@pytest.mark.parametrize("name", ["random", "tpe"])
@pytest.mark.parametrize("killed_at", [1, 7])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not(name, killed_at):
    whole = sequence(searcher(name, MIXED, ACCURACY, 3), 9)
    first = sequence(searcher(name, MIXED, ACCURACY, 3), killed_at)
    known = [trial(number, float(number % 3), state="finished", point=point) for number, point in enumerate(first)]
    assert sequence(searcher(name, MIXED, ACCURACY, 3), 9, known) == whole


@given(seed=st.integers(0, 2**64 - 1), number=st.integers(0, 2**32))
def test_random_points_are_the_draws_of_the_space(seed, number):
    assert searcher("random", MIXED, ACCURACY, seed).suggest(number, []) == MIXED.draw(seed, number)


def test_a_random_point_does_not_depend_on_how_trials_went():
    source = searcher("random", NINE, ACCURACY, 0)
    points = sequence(source, 5)
    states: list[State] = list(get_args(State))
    ended = {
        identity(source.suggest(5, [trial(k, state=state, point=point) for k, point in enumerate(points)]) or {})
        for state in states
    }
    assert len(ended) == 1


def test_a_draw_that_was_tried_gives_way_in_a_space_that_has_others():
    drawn = MIXED.draw(0, 1)
    other = searcher("random", MIXED, ACCURACY, 0).suggest(1, [trial(0, point=drawn)])
    assert other is not None
    assert identity(other) != identity(drawn)


def test_whole_fractions_are_the_same_point_and_truth_values_are_not():
    assert identity({"a": 1, "b": 2}) == identity({"b": 2, "a": 1.0})
    assert identity({"a": 1}) != identity({"a": True})


def test_a_grid_without_shuffle_is_in_order():
    source = searcher("grid", NINE, ACCURACY, 5, {"shuffle": False})
    assert [source.suggest(number, []) for number in range(9)] == list(NINE.grid())
    assert source.suggest(9, []) is None


def test_a_shuffled_grid_starts_in_many_places():
    starts = {identity(searcher("grid", NINE, ACCURACY, seed).suggest(0, []) or {}) for seed in range(60)}
    assert len(starts) == 9


WIDE = Space("wide", (Dimension("train.batch_size", "int", low=1, high=200_000),), (), {})


@pytest.mark.parametrize(
    ("name", "space", "settings", "said"),
    [
        ("tpo", NINE, {}, r"^searcher: unknown searcher 'tpo'; did you mean 'tpe'\?$"),
        ("bohb-3", NINE, {}, r"^searcher: unknown searcher 'bohb-3'; there is random, grid, tpe, gp$"),
        ("random", NINE, {"startup": 3}, r"^searcher\.startup: unknown key; it takes none$"),
        ("tpe", NINE, {"startups": 3}, r"^searcher\.startups: unknown key; did you mean 'startup'\?$"),
        ("tpe", NINE, {"startup": 0}, r"^searcher\.startup: got 0, must be a whole number >= 1$"),
        ("grid", NINE, {"shuffle": "no"}, r"^searcher\.shuffle: got 'no', must be true or false$"),
        ("grid", MIXED, {}, r"mixer\.params\.a: uniform has no grid \(and 1 more\); use choice, grid or int"),
        ("grid", WIDE, {}, r"^searcher\.shuffle: space wide has more than 100,000 points; write shuffle false"),
    ],
)
def test_refusals(name, space, settings, said):
    with pytest.raises(ConfigError, match=said):
        searcher(name, space, ACCURACY, 0, settings)


def test_a_large_grid_is_walked_in_order():
    assert searcher("grid", WIDE, ACCURACY, 0, {"shuffle": False}).suggest(4, []) == {"train.batch_size": 5}


COSTLY = Goal("accuracy", "max", "flops")


def test_the_front_holds_what_nothing_beats_in_both():
    rows = [(0.9, 50.0), (0.8, 10.0), (0.7, 20.0), (0.9, 60.0), (0.95, 70.0), (0.8, 10.0)]
    trials = [trial(k, value, state="finished", flops=flops) for k, (value, flops) in enumerate(rows)]
    assert [one.number for one in pareto(trials, COSTLY)] == [1, 0, 4]


def test_the_front_of_a_falling_metric():
    trials = [trial(k, value, state="finished", seconds=s) for k, (value, s) in enumerate([(3, 1), (2, 2), (4, 3)])]
    assert [one.number for one in pareto(trials, Goal("perplexity", "min", "seconds"))] == [0, 1]


def test_the_front_leaves_out_what_cannot_be_compared():
    trials = [
        trial(0, 0.9, state="pruned", flops=1.0),
        trial(1, math.nan, state="finished", flops=1.0),
        trial(2, 0.9, state="finished"),
        trial(3, 0.5, state="finished", flops=9.0),
    ]
    assert [one.number for one in pareto(trials, COSTLY)] == [3]


def test_a_front_needs_two_objectives():
    with pytest.raises(ValueError, match="a front needs a goal with a cost, seconds or flops"):
        pareto([], PERPLEXITY)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), max_size=12))
def test_every_trial_is_on_the_front_or_behind_one_of_it(rows):
    trials = [trial(k, float(v), state="finished", flops=float(c)) for k, (v, c) in enumerate(rows)]
    front = [rows[one.number] for one in pareto(trials, COSTLY)]
    assert all(any(v >= value and c <= cost for v, c in front) for value, cost in rows)
    assert all(not (v >= value and c <= cost) for value, cost in front for v, c in front if (v, c) != (value, cost))


def test_one_objective_searchers_do_not_look_at_the_cost():
    known = of_points(list(NINE.grid())[:4], lambda point: 0.5, flops=3.0)
    for name in ("random", "grid"):
        assert searcher(name, NINE, COSTLY, 0).suggest(4, known) == searcher(name, NINE, ACCURACY, 0).suggest(4, known)
