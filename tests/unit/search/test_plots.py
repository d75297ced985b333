"""Pictures of searches: which are drawn, what they show, and that no trial whatever breaks them."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from search_trials import ACCURACY, MIXED, PERPLEXITY, of_points, trial

from subquad.search.pictures import Drawn, Pictured, draw
from subquad.search.pictures.axes import numbered, tidy_log, visible
from subquad.search.pictures.by_optuna import KINDS as KINDS_BY_OPTUNA
from subquad.search.pictures.front import draw_front
from subquad.search.pictures.names import cut, short_names
from subquad.search.pictures.study import numbers_of, study_of
from subquad.search.trial import Trial
from subquad.space import Dimension, Space

pytest.importorskip("optuna")

RATE = Dimension("train.lr", "loguniform", low=1e-4, high=1e-2, log=True)
ONE = Space("one", (RATE,), (), {})
NONE = Space("none", (), (), {})
KINDS = ("history", "parallel", "slice", "importances")


def score(point: dict) -> float:
    return 0.5 + 0.1 * math.log10(point["train.lr"])


def subject(label: str = "agf", space: Space = MIXED, count: int = 12, goal=ACCURACY) -> Pictured:
    trials = of_points([space.draw(0, number) for number in range(count)], score, steps=100, flops=1e9)
    return Pictured(label, space, goal, trials)


def names(drawn: Drawn) -> list[str]:
    return [path.name for path in drawn.files]


def size(path: Path) -> tuple[int, int]:
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def parallel_of(one: Pictured) -> Figure:
    import matplotlib.pyplot as plt

    figure = KINDS_BY_OPTUNA["parallel"](study_of(one, numbers=True), one)
    plt.close(figure)
    return figure


def pixels(path: Path) -> np.ndarray:
    return np.asarray(imread(path))


@pytest.fixture(scope="module")
def conditional(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """Every kind of dimension, one of them conditional."""
    return draw([subject()], tmp_path_factory.mktemp("plots"))


def test_every_picture_is_drawn_of_conditional_settings(conditional: Drawn):
    assert names(conditional) == ["best-so-far.png", *(f"agf-{kind}.png" for kind in KINDS)]
    assert conditional.left_out == ()


def test_pictures_are_wide_enough_and_not_endless(conditional: Drawn):
    for path in conditional.files:
        width, height = size(path)
        assert 500 < width < 2000, path.name
        assert 200 < height < 1500, path.name
        assert (pixels(path)[..., :3].min(axis=-1) < 0.9).mean() > 0.01, path.name


def test_the_curve_of_a_second_subject_is_drawn_too(tmp_path: Path):
    one = Pictured("agf", NONE, ACCURACY, [trial(0, 0.5, state="finished", steps=9, flops=1e9)])
    other = Pictured("softmax", NONE, ACCURACY, [trial(0, 0.9, state="finished", steps=9, flops=2e9)])
    draw([one], tmp_path / "one")
    draw([one, other], tmp_path / "two")
    one, two = (pixels(tmp_path / name / "best-so-far.png") for name in ("one", "two"))
    assert (one != two).any()


def test_metrics_that_cannot_be_compared_have_pictures_of_their_own(tmp_path: Path):
    known = [trial(0, 0.5, state="finished", steps=10)]
    pair = [Pictured("a", NONE, ACCURACY, known), Pictured("b", NONE, PERPLEXITY, known)]
    assert names(draw(pair, tmp_path)) == ["best-so-far-accuracy.png", "best-so-far-perplexity.png"]


COSTLY = replace(ACCURACY, cost="flops")


def priced(*rows: tuple[float, float]) -> Pictured:
    trials = [trial(number, value, state="finished", flops=cost) for number, (value, cost) in enumerate(rows)]
    return Pictured("agf", NONE, COSTLY, trials)


def test_a_second_objective_has_a_picture_of_its_front(tmp_path: Path):
    assert names(draw([priced((0.5, 1e9), (0.75, 2e9))], tmp_path)) == [
        "best-so-far.png", "agf-front.png", "agf-history.png"
    ]  # fmt: skip


def test_the_front_is_a_line_through_what_nothing_beats(tmp_path: Path):
    beaten, better = (0.6, 3e9), (0.9, 3e9)
    for name, third in (("behind", beaten), ("on", better), ("again", beaten)):
        draw_front(priced((0.5, 1e9), (0.75, 2e9), third, (0.95, 3.5e9)), tmp_path / f"{name}.png")
    behind, on, again = (pixels(tmp_path / f"{name}.png") for name in ("behind", "on", "again"))
    assert (behind == again).all()
    orange = [(abs(one[..., :3] - np.array([1.0, 0.498, 0.055])).max(axis=-1) < 0.02).sum() for one in (behind, on)]
    assert orange[1] > orange[0] > 100  # one more dot, and longer steps


def test_trials_without_a_cost_have_no_front(tmp_path: Path):
    drawn = draw([priced((0.5, 0.0))], tmp_path)
    assert "agf-front.png: no finished trial has a value and a cost" in drawn.left_out


@pytest.mark.parametrize(
    ("trials", "reason"),
    [
        ([], "best-so-far.png: no finished trial has a value"),
        ([trial(0, 0.5, state="failed")], "best-so-far.png: no finished trial has a value"),
        ([trial(0, 0.5, state="pruned"), trial(1)], "best-so-far.png: no finished trial has a value"),
        ([trial(0, math.nan, state="finished")], "best-so-far.png: no finished trial has a value"),
        ([trial(0, -math.inf, state="finished")], "best-so-far.png: no finished trial has a value"),
        ([trial(0, state="infeasible")], "best-so-far.png: no finished trial has a value"),
    ],
)
def test_without_a_value_nothing_is_drawn_and_it_is_said_why(trials: list[Trial], reason: str, tmp_path: Path):
    drawn = draw([Pictured("agf", ONE, ACCURACY, trials)], tmp_path)
    whole = "agf-history.png, agf-parallel.png, agf-slice.png, agf-importances.png"
    assert drawn == Drawn((), (reason, f"{whole}: 0 finished trials with a value, 2 are needed"))
    assert list(tmp_path.iterdir()) == []


def test_one_finished_trial_has_a_curve_only(tmp_path: Path):
    drawn = draw([subject(space=ONE, count=1)], tmp_path)
    assert names(drawn) == ["best-so-far.png"]
    assert "1 finished trial with a value, 2 are needed" in drawn.left_out[0]


def test_of_one_setting_there_is_no_importance(tmp_path: Path):
    drawn = draw([subject(space=ONE, count=4)], tmp_path)
    assert names(drawn) == ["best-so-far.png", "agf-history.png", "agf-parallel.png", "agf-slice.png"]
    assert drawn.left_out == ("agf-importances.png: fewer than 2 settings differ between finished trials",)


def test_where_nothing_was_searched_the_history_is_left(tmp_path: Path):
    found = Pictured("identity", NONE, ACCURACY, [trial(number, 0.2, state="finished") for number in range(2)])
    drawn = draw([found], tmp_path)
    assert names(drawn) == ["best-so-far.png", "identity-history.png"]
    assert "identity-slice.png" in drawn.left_out[0]
    assert drawn.left_out[0].endswith(": nothing was searched")


def test_trials_without_a_value_change_no_picture_of_settings(tmp_path: Path):
    fine = subject(space=ONE, count=3)
    others = [
        trial(6, 0.99, state="pruned", point=ONE.draw(0, 6), steps=10),
        trial(7, math.nan, state="finished", point=ONE.draw(0, 7), steps=100),
        trial(8, 0.99, state="failed", point=ONE.draw(0, 8)),
        trial(9, 0.99, state="finished", point={"of": "another space"}),
    ]
    draw([fine], tmp_path / "fine")
    mixed = draw([replace(fine, trials=[*fine.trials, *others])], tmp_path / "mixed")
    assert names(mixed) == ["best-so-far.png", "agf-history.png", "agf-parallel.png", "agf-slice.png"]
    assert (pixels(tmp_path / "fine" / "agf-slice.png") == pixels(tmp_path / "mixed" / "agf-slice.png")).all()
    curves = [pixels(tmp_path / name / "best-so-far.png") for name in ("fine", "mixed")]
    assert (curves[0] != curves[1]).any()


def test_values_that_are_all_equal_are_drawn(tmp_path: Path):
    same = [trial(number, 1.0, state="finished", point=ONE.draw(0, 0)) for number in range(3)]
    assert "agf-slice.png" in names(draw([Pictured("agf", ONE, PERPLEXITY, same)], tmp_path))


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_the_worst_trial_is_seen_among_the_coordinates(tmp_path: Path):
    """Its line was white on white: the colours of a study began there."""
    points = [{"train.lr": 1e-3}, {"train.lr": 1e-4}]
    trials = [trial(number, value, state="finished", point=point) for number, (value, point) in
              enumerate(zip((0.9, 0.1), points, strict=True))]  # fmt: skip
    figure = parallel_of(Pictured("agf", ONE, ACCURACY, trials))
    (lines,) = figure.axes[0].collections
    assert lines.get_cmap()(0.0)[0] < 0.8


def test_axes_show_the_numbers_that_trials_have(tmp_path: Path):
    trials = [trial(number, 0.5, state="finished", point=ONE.draw(0, number)) for number in (2, 5, 11)]
    study = study_of(Pictured("agf", ONE, ACCURACY, trials))
    figure = Figure()
    axes = figure.add_subplot()
    axes.plot([0, 1, 2], [0, 0, 0])
    numbered(axes.xaxis, numbers_of(study))
    formatter = axes.xaxis.get_major_formatter()
    assert [formatter(place) for place in (-1, 0, 0.5, 1, 2, 3)] == ["", "2", "", "5", "11", ""]


@pytest.mark.parametrize("name", ["Blues", "Blues_r"])
def test_no_colour_is_too_pale(name: str):
    colours = visible(matplotlib.colormaps[name])
    assert max(min(colours(share)[:3]) for share in (0.0, 0.5, 1.0)) < 0.8
    assert min(min(colours(share)[:3]) for share in (0.0, 1.0)) < 0.1


def test_logarithmic_axes_have_plain_numbers_where_few_powers_are_in_sight():
    axes = Figure().add_subplot()
    axes.set_yscale("log")
    axes.set_ylim(1e-4, 9e-3)
    tidy_log(axes.yaxis, axes.get_ylim(), few=100)
    formatter, locator = axes.yaxis.get_minor_formatter(), axes.yaxis.get_minor_locator()
    inside = [value for value in locator() if 1e-4 <= value <= 9e-3]
    assert [formatter(value) for value in inside] == ["0.0002", "0.0005", "0.002", "0.005"]
    assert axes.yaxis.get_major_formatter()(1e-3) == "0.001"
    tidy_log(axes.yaxis, axes.get_ylim())
    assert axes.yaxis.get_minor_formatter()(2e-4) == ""


def test_odd_names_and_values_do_not_reach_the_mathematics_of_labels(tmp_path: Path):
    choices = ("$x_", None, True, "a very long value of a setting, one", "a very long value of a setting, two", (1, 2))
    space = Space("odd", (Dimension("mixer.params.$odd$", "choice", values=choices), RATE), (), {})
    drawn = draw([subject("a$b", space, 20, replace(ACCURACY, metric="top@5$"))], tmp_path)
    assert len(drawn.files) == 5, drawn.left_out


def test_drawing_leaves_style_figures_and_logs_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    import matplotlib.pyplot as plt
    import optuna

    before = (dict(matplotlib.rcParams), plt.get_fignums(), optuna.logging.get_verbosity())
    draw([subject(space=ONE, count=3)], tmp_path)
    assert (dict(matplotlib.rcParams), plt.get_fignums(), optuna.logging.get_verbosity()) == before
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_cannot_be_written_is_said_and_not_raised(tmp_path: Path):
    (tmp_path / "plots").write_text("a file")
    drawn = draw([subject(space=ONE, count=2)], tmp_path / "plots")
    assert drawn.files == ()
    assert "agf-slice.png" in drawn.left_out[0]
    assert "FileExistsError" in drawn.left_out[0]


def test_names_are_as_short_as_they_can_be():
    paths = ["mixer.params.order", "train.lr", "mixer.params.dropout", "backbone.params.dropout", "seed"]
    assert list(short_names(paths).values()) == ["order", "lr", "mixer.dropout", "backbone.dropout", "seed"]
    assert short_names([]) == {}
    assert short_names(["a.b", "b"]) == {"a.b": "a.b", "b": "b"}


def test_texts_are_cut_and_carry_no_mathematics():
    assert cut("a$b") == r"a\$b"
    assert cut("x" * 30, 10) == "x" * 9 + "…"
