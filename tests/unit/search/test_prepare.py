"""What is refused before a search starts, and what a dry run tells of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_run import SMALL

from subquad.cli.search import _timing_lines
from subquad.errors import ConfigError
from subquad.execution.local import LocalExecutor
from subquad.experiment import load_study
from subquad.search.fitting import Prepared
from subquad.search.prepare import estimate, prepare
from subquad.search.search import Search, plan_search
from subquad.search.settings import Settings
from subquad.search.timing import SearchCosts, Timing

RATES = "dims: {train.lr: {loguniform: [1e-4, 1e-2]}}"
HEADS = (
    "dims: {train.lr: {loguniform: [1e-4, 1e-2]}, backbone.params.num_heads: {choice: [3, 5, 7]}}"
)
MIXERS = "matrix: {mixer: [softmax, agf]}\n"
ASHA = {"pruner": "asha", "budget": "1e9flops"}


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Search]:
    """A search of the small experiment, which has 39 steps."""
    monkeypatch.chdir(tmp_path)

    def make(space: str, *overrides: str, more: str = "", **settings) -> Search:
        (tmp_path / "small.yaml").write_text(SMALL + more)
        (tmp_path / "space.yaml").write_text(space)
        return plan_search(
            load_study("small.yaml", overrides), Settings("./space.yaml", **settings)
        )

    return make


@pytest.fixture
def ready(search: Callable[..., Search]) -> Callable[..., Prepared]:
    return lambda *arguments, **settings: prepare(search(*arguments, **settings), LocalExecutor())


@pytest.mark.parametrize("every", ["train.eval_every_epochs=3", "train.eval_every_steps=39"])
def test_a_scheduler_that_sees_the_last_evaluation_only_is_refused(ready, every):
    off = [] if "epochs" in every else ["train.eval_every_epochs=null"]
    message = (
        r"^--pruner asha: never sees an evaluation .* as small is evaluated every 39 "
        r"steps and has 39; lower"
    )
    with pytest.raises(ConfigError, match=message):
        ready(RATES, every, *off, **ASHA)


def test_one_that_sees_an_earlier_one_is_not(ready):
    assert ready(RATES, "train.eval_every_epochs=null", "train.eval_every_steps=38", **ASHA)


def test_a_space_of_which_no_point_can_run_is_refused(ready):
    with pytest.raises(
        ConfigError,
        match=r"^space ./space.yaml: the first 50 points of small are infeasible, such "
        r"as: .*divisible by",
    ):
        ready(HEADS)
    with pytest.raises(
        ConfigError, match=r"^space ./space.yaml: all 3 points of small are infeasible, such as: "
    ):
        ready("dims: {backbone.params.num_heads: {choice: [3, 5, 7]}}")


def test_a_dry_run_tells_how_many_points_are_infeasible(ready):
    found = estimate(ready(HEADS.replace("7]", "2]"), budget="7-trials"))
    (row,) = found["candidates"]
    assert row["drawn"] == 20
    assert 0 < row["infeasible"] < 20
    assert len(row["points"]) == 5
    assert sum(bool(point["infeasible"]) for point in row["points"]) <= row["infeasible"]
    assert not found["at_least"]


def test_with_a_scheduler_a_dry_run_counts_the_least_number_of_trials(ready):
    assert estimate(ready(RATES, **ASHA))["at_least"]
    assert not estimate(ready(RATES, **{**ASHA, "budget": "4-trials"}))["at_least"]


def test_flops_that_whole_steps_cannot_match_are_refused(ready):
    short = ["train.steps=4", "train.epochs=null", "train.eval_every_epochs=null"]
    with pytest.raises(
        ConfigError,
        match=r"^trial.match=flops: agf: no number of steps has \S+ FLOPs within 5%: the "
        r"nearest, \d, is \d+% off; longer",
    ):
        ready(RATES, *short, more=MIXERS, match="flops")


def test_flops_that_whole_steps_match(ready):
    prepared = ready(RATES, more=MIXERS, match="flops")
    first, second = (
        prepared.fit(candidate, {"train.lr": 1e-3}).flops
        for candidate in prepared.search.candidates
    )
    assert second == pytest.approx(first, rel=0.05)


def test_steps_and_evaluations_are_timed(search):
    candidates = {
        candidate.label: candidate.run for candidate in search(RATES, more=MIXERS).candidates
    }
    found = SearchCosts().timings(candidates)
    assert list(found) == ["softmax", "agf"]
    assert all(
        timing["step"] > 0 and timing["evaluation"] > 0 and timing["spread"] >= 0
        for timing in found.values()
    )


def test_unequal_timings_are_told():
    quiet, noisy = (
        Timing(step=0.01, evaluation=0.5, spread=0.02),
        Timing(step=0.0123, evaluation=0.5, spread=0.43),
    )
    assert _timing_lines({"agf": quiet}) == ["agf: timed at 10 ms a step, 500 ms an evaluation"]
    assert _timing_lines({"agf": quiet, "cur": noisy})[1:] == [
        "cur: timed at 12.3 ms a step, 500 ms an evaluation",
        "steps took unequally long between rounds: cur (43%); is something else running here?",
    ]
