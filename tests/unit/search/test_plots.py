"""Pictures of searches: which are drawn, and that no trial whatever breaks them."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import matplotlib
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from search_trials import ACCURACY, MIXED, PERPLEXITY, of_points, trial

from subquad.search import plots
from subquad.search.plots import Drawn, Pictured, draw
from subquad.search.trial import Curve, Goal, Trial
from subquad.space import Dimension, Space

RATE = Dimension("train.lr", FloatDistribution(1e-4, 1e-2, log=True))
ONE = Space("one", (RATE,), (), {})
NONE = Space("none", (), (), {})
KINDS = ("curves", "parallel", "slice", "importances")


def score(point: dict) -> float:
    return 0.5 + 0.1 * math.log10(point["train.lr"])


def curve_of(trial: Trial) -> Curve:
    return [trial.best] if trial.best else []


def tuned(space: Space, points: list[dict], label: str = "agf", goal=ACCURACY) -> Pictured:
    trials = of_points(points, score, steps=100, flops=1e9)
    return Pictured(label, space, goal, trials, curve_of)


def candidate(label: str = "agf", space: Space = MIXED, count: int = 12, goal=ACCURACY) -> Pictured:
    return tuned(space, [space.draw(0, number) for number in range(count)], label, goal)


def names(drawn: Drawn) -> list[str]:
    return [path.name for path in drawn.files]


def size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def test_every_picture_is_drawn_of_conditional_settings(tmp_path):
    drawn = draw([candidate()], tmp_path)
    assert drawn.left_out == ()
    assert names(drawn) == ["best-so-far.png", *(f"agf-{kind}.png" for kind in KINDS)]
    for path in drawn.files:
        width, height = size(path)
        assert 400 < width < 2500, path.name
        assert 200 < height < 1500, path.name


@pytest.mark.ci
def test_candidates_are_compared_where_they_have_one_metric(tmp_path):
    both = draw([candidate("agf", ONE), candidate("cur", ONE)], tmp_path / "both")
    assert names(both)[0] == "best-so-far.png"
    apart = draw(
        [candidate("agf", ONE), candidate("cur", ONE, goal=PERPLEXITY)], tmp_path / "apart"
    )
    assert names(apart)[:2] == ["best-so-far-accuracy.png", "best-so-far-perplexity.png"]


@pytest.mark.parametrize("goal", [ACCURACY, PERPLEXITY])
def test_the_best_so_far_has_a_line_that_never_gets_worse(goal):
    pictured = candidate(space=ONE, goal=goal)
    with plots._apart() as charts:
        (axes,) = plots._best_so_far([pictured], charts).axes
        (line,) = axes.lines
    better = 1 if goal.mode == "max" else -1
    values = [better * value for value in line.get_ydata()]
    assert values == sorted(values)
    assert len(set(values)) > 1


@pytest.mark.parametrize("goal", [ACCURACY, PERPLEXITY])
def test_the_best_trials_are_the_dark_ones(goal):
    with plots._apart() as charts:
        figure = plots._parallel(candidate(space=ONE, goal=goal), charts)
        drawn = next(lines for axes in figure.axes for lines in axes.collections)
        scores = drawn.get_array()
        best = scores.argmax() if goal.mode == "max" else scores.argmin()
        darkness = [1 - sum(color[:3]) / 3 for color in drawn.to_rgba(scores)]
    assert darkness[best] == max(darkness) > min(darkness)


def test_a_setting_that_never_differs_has_no_panel():
    decay = Dimension("train.weight_decay", FloatDistribution(0.0, 0.1))
    both = Space("both", (RATE, decay), (), {})
    points = [{"train.lr": 10**-power, "train.weight_decay": 0.05} for power in (2, 3, 4)]
    pictured = Pictured(
        "agf", both, ACCURACY, of_points(points, score, steps=100, flops=1e9), curve_of
    )
    with plots._apart() as charts:
        panels = plots._slice(pictured, charts).axes
        shown = [
            label.get_text()
            for label in plots._parallel(pictured, charts).axes[0].get_xticklabels()
        ]
    assert [panel.get_xlabel() for panel in panels if panel.get_xlabel()] == ["lr"]
    assert "lr" in shown
    assert "weight_decay" not in shown


def test_equal_trials_have_no_panels(tmp_path):
    points = [{"train.lr": 1e-3}] * 3
    pictured = Pictured(
        "agf", ONE, ACCURACY, of_points(points, score, steps=100, flops=1e9), curve_of
    )
    drawn = draw([pictured], tmp_path)
    assert names(drawn) == ["best-so-far.png", "agf-curves.png"]
    assert drawn.left_out == (
        "agf-parallel.png, agf-slice.png: no setting differs between finished trials",
        "agf-importances.png: all finished trials are equal",
    )


def test_two_objectives_have_a_front(tmp_path):
    drawn = draw([candidate(goal=Goal("accuracy", "max", "flops"))], tmp_path)
    assert drawn.left_out == ()
    assert names(drawn) == [
        "best-so-far.png",
        "agf-front.png",
        *(f"agf-{kind}.png" for kind in KINDS),
    ]


def test_what_cannot_be_drawn_is_told(tmp_path):
    drawn = draw([Pictured("agf", ONE, ACCURACY, [], curve_of)], tmp_path)
    assert drawn.files == ()
    assert drawn.left_out == (
        "best-so-far.png: no finished trial has a value",
        "agf-curves.png: no trial was evaluated",
        "agf-parallel.png, agf-slice.png, agf-importances.png: 0 finished trials "
        "with a value, 2 are needed",
    )


def test_where_nothing_varies_no_picture_of_settings_is_missed(tmp_path):
    alone = [trial(k, 0.5, state="finished", point={}) for k in range(2)]
    drawn = draw([Pictured("identity", NONE, ACCURACY, alone, curve_of)], tmp_path)
    assert names(drawn) == ["best-so-far.png", "identity-curves.png"]
    assert drawn.left_out == ()


def test_of_equal_trials_no_importance_is_drawn(tmp_path):
    equal = of_points([MIXED.draw(0, number) for number in range(12)], lambda point: 0.5, steps=100)
    drawn = draw([Pictured("agf", MIXED, ACCURACY, equal, curve_of)], tmp_path)
    assert drawn.left_out == ("agf-importances.png: all finished trials are equal",)


@pytest.mark.parametrize("count", [12, 13])
def test_a_legend_names_a_dozen_curves_at_most(count):
    with plots._apart() as charts:
        figure = plots._curves(candidate(count=count), charts)
        assert (figure.axes[0].get_legend() is None) == (count > 12)


@pytest.mark.ci
@pytest.mark.parametrize("state", ["running", "pruned", "failed", "infeasible"])
def test_trials_that_did_not_finish_do_no_harm(tmp_path, state):
    pictured = candidate(space=ONE)
    strange = [
        trial(12, state=state, point={"train.lr": 1e-3}),
        trial(13, math.nan, state=state, point={}),
    ]
    drawn = draw([Pictured("agf", ONE, ACCURACY, [*pictured.trials, *strange], curve_of)], tmp_path)
    assert [name.removesuffix(".png") for name in names(drawn)] == [
        "best-so-far",
        "agf-curves",
        "agf-parallel",
        "agf-slice",
    ]


def test_lists_of_anything_and_labels_with_dollars(tmp_path):
    mixed = Dimension(
        "mixer.params.basis", CategoricalDistribution((None, True, 3, 0.5, "$x_y$", "a" * 90))
    )
    space = Space("odd", (mixed, RATE), (), {})
    drawn = draw([candidate("a$_b$", space, 12)], tmp_path)
    assert drawn.left_out == ()
    assert len(drawn.files) == 5


def test_whatever_a_library_raises_is_told(tmp_path, monkeypatch):
    def broken(pictured, charts):
        raise RuntimeError("no\nfonts")

    monkeypatch.setattr(plots, "_curves", broken)
    assert (
        "agf-curves.png: RuntimeError: no fonts" in draw([candidate(space=ONE)], tmp_path).left_out
    )


def test_nothing_is_left_behind(tmp_path):
    import matplotlib.pyplot as plt

    before = dict(matplotlib.rcParams), plt.get_fignums(), optuna.logging.get_verbosity()
    draw([candidate(space=ONE)], tmp_path)
    assert (dict(matplotlib.rcParams), plt.get_fignums(), optuna.logging.get_verbosity()) == before
