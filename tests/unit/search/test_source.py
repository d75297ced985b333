"""Which trial is given out next, and when a candidate's search is over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from result_file import ended
from small_run import SMALL

from subquad.errors import ConfigError, RunError
from subquad.execution.local import LocalExecutor
from subquad.experiment import Run, load_study
from subquad.record.files import append_line
from subquad.record.integrity import write_result
from subquad.record.names import ATTEMPTS, JOURNAL
from subquad.record.trust import trust_folder
from subquad.search.fitting import Prepared
from subquad.search.prepare import MAX_FRUITLESS, prepare
from subquad.search.search import plan_search
from subquad.search.settings import Settings
from subquad.search.source import TrialSource
from subquad.search.trial import Trial
from subquad.space import Point

RATES = "dims: {train.lr: {loguniform: [1e-4, 1e-2]}}"


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Prepared]:
    """A search of the small experiment, ready to start."""
    monkeypatch.chdir(tmp_path)

    def make(space: str, *overrides: str, **settings) -> Prepared:
        (tmp_path / "small.yaml").write_text(SMALL)
        (tmp_path / "space.yaml").write_text(space)
        trust_folder(tmp_path, always=False)
        plan = load_study("small.yaml", overrides)
        return prepare(plan_search(plan, Settings("./space.yaml", **settings)), LocalExecutor())

    return make


def driver(prepared: Prepared, folder: Path) -> TrialSource:
    """What a driver that starts on this folder asks for trials."""
    return TrialSource(prepared, folder, prepared.search.trials(folder))


def end(source: TrialSource, ticket: Run | None, status: str, steps: int) -> None:
    """Let a trial end, and tell of it."""
    assert ticket is not None
    write_result(ticket.folder, ended(status, steps=steps, seconds=0.0, reason="by the test"))
    source.ended(ticket.folder)


def known(prepared: Prepared, folder: Path) -> Sequence[Trial]:
    """Trials as a reader of the folder has them."""
    return prepared.search.trials(folder)["small"].known


@pytest.mark.ci
def test_trials_that_fail_at_once_do_not_go_on_for_ever(prepared, tmp_path):
    source = driver(prepared(RATES, budget="1e9flops"), tmp_path)
    count = 0
    while ticket := source.next():
        end(source, ticket, "failed", 0)
        count += 1
        assert count <= MAX_FRUITLESS
    assert count == MAX_FRUITLESS
    assert source.over["small"] == f"{MAX_FRUITLESS} trials in a row failed, the last: by the test"


@pytest.mark.ci
def test_one_that_ends_otherwise_starts_the_count_anew(prepared, tmp_path):
    source = driver(prepared(RATES, budget="1e9flops"), tmp_path)
    for number in range(MAX_FRUITLESS + 5):
        end(source, source.next(), "finished" if number == 10 else "failed", 0)
    assert source.next()
    assert not source.over


def test_what_running_trials_leave_of_the_budget_is_given_out(prepared, tmp_path):
    ready = prepared(RATES, budget="1e15flops")
    cost = ready.own_trial(ready.search.candidates[0]).flops
    ready = prepared(RATES, budget=f"{2.5 * cost:.6e}flops")
    source = driver(ready, tmp_path)
    running = [source.next(), source.next()]
    assert source.next() is None
    assert not source.over
    for ticket in running:
        end(source, ticket, "pruned", 1)
    third = source.next()
    assert third is not None
    assert third.folder.name == "00002"
    end(source, third, "finished", 39)
    fourth = source.next()
    end(source, fourth, "finished", 39)
    assert source.next() is None
    assert source.over["small"] == "budget used"
    again = driver(ready, tmp_path)
    assert again.next() is None
    assert again.over["small"] == "budget used"


UNCOUNTED = '''"""Runs in training, and cannot be counted at some settings."""
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, param


class Uncounted(TokenMixer):
    class Config(MixerConfig):
        counts: bool = param(True, meaning="whether its FLOPs can be counted")

    facts = Facts(padding_invariant=True, complexity="L")
    paper = "nobody, 2026"

    def __init__(self, config, site):
        super().__init__()
        self.counts = config.counts
        self.value = torch.nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        if not self.counts and len(x) == 2:
            raise RuntimeError("needs a GPU")
        return self.value(x)
'''


@pytest.mark.parametrize(("budget", "state"), [("1e9flops", "infeasible"), ("3-trials", "running")])
def test_a_point_whose_flops_are_unknown_is_not_free(prepared, tmp_path, budget, state):
    (tmp_path / "uncounted.py").write_text(UNCOUNTED)
    space = "dims: {mixer.params.counts: {choice: [false, true]}}"
    ready = prepared(space, "mixer=./uncounted.py:Uncounted", budget=budget, sampler="grid")
    source = driver(ready, tmp_path)
    while source.next():
        pass
    found = {trial.point["mixer.params.counts"]: trial for trial in known(ready, tmp_path)}
    assert {counts: trial.state for counts, trial in found.items()} == {
        True: "running",
        False: state,
    }
    if state == "infeasible":
        assert found[False].reason == (
            "its FLOPs cannot be counted (RuntimeError: needs a GPU), and the "
            "budget is one of FLOPs"
        )


@pytest.mark.ci
def test_constraints_that_leave_hardly_a_point_end_the_candidate_with_the_reason(
    prepared, tmp_path
):
    """A continuous setting cannot be listed: about one draw in 240 keeps the constraint, and a
    number has 1,000 draws.

    Trials have the points of the numbers before the first one whose draws all break it, and that
    one ends the search.
    """
    space = (
        "dims: {backbone.params.dropout: {uniform: [0.0, 0.9]}, train.lr: {uniform: "
        "[1.0e-3, 0.0065]}}\n"
    )
    bound = "constraints: [{less: [backbone.params.dropout, train.lr]}]"
    ready = prepared(space + bound, budget="20-trials", seed=1)
    drawn: list[Point] = []

    def draw_all() -> None:
        for number in range(20):
            drawn.append(ready.search.candidates[0].space.draw(1, number))

    with pytest.raises(
        ConfigError, match=r"^space space: none of 1,000 random points keeps its const.* \(less: "
    ) as raised:
        draw_all()
    assert drawn, "seed 1 has points before it runs out of them"
    source = driver(ready, tmp_path)
    for point in drawn:
        end(source, source.next(), "finished", 39)
        assert known(ready, tmp_path)[-1].point == point
    assert source.next() is None
    assert source.over == {"small": str(raised.value)}
    assert len(known(ready, tmp_path)) == len(drawn)


def test_a_run_that_the_journal_does_not_know_is_never_taken_for_a_new_one(prepared, tmp_path):
    ready = prepared(RATES, budget="3-trials")
    source = driver(ready, tmp_path)
    for _ in range(2):
        run = source.next()
        assert run is not None
        append_line(run.folder / ATTEMPTS, {})
    journal = tmp_path / JOURNAL
    first, _ = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(first)
    again = driver(ready, tmp_path)
    assert again.next() is not None
    with pytest.raises(RunError, match=r"trials\.jsonl: does not know \S+00001; put it back as"):
        again.next()


@pytest.mark.parametrize("sampler", ["random", "grid", "tpe"])
def test_killed_in_the_middle_of_any_write_it_gives_out_the_same_points(
    prepared, tmp_path, sampler
):
    """Of each journal that a kill can leave, cut at any line and within it, the rest comes as it
    did.
    """
    space = "dims: {train.lr: {choice: [1e-4, 1e-3, 1e-2]}, train.batch_size: {choice: [8, 16]}}"
    ready = prepared(space, budget="5-trials", sampler=sampler)

    def drive(folder: Path) -> Sequence[Trial]:
        folder.mkdir(exist_ok=True)
        source = driver(ready, folder)
        for run in list(source.unrecorded()):
            source.ended(run)
        while (run := source.next()) is not None:
            end(source, run, "failed" if run.folder.name == "00001" else "finished", 39)
        return known(ready, folder)

    whole = drive(tmp_path / "whole")
    assert len(whole) == 5
    content = (tmp_path / "whole" / JOURNAL).read_bytes()
    lines = content.splitlines(keepends=True)
    for count in range(len(lines)):
        for torn in (0, 1, len(lines[count]) - 1):
            folder = tmp_path / f"{count}-{torn}"
            folder.mkdir()
            (folder / JOURNAL).write_bytes(b"".join(lines[:count]) + lines[count][:torn])
            assert drive(folder) == whole
            assert (folder / JOURNAL).read_bytes().count(b"\n") == len(lines)


def test_a_result_that_a_killed_driver_did_not_record_is_recorded(prepared, tmp_path):
    ready = prepared(RATES, budget="2-trials")
    run = driver(ready, tmp_path).next()
    assert run is not None
    write_result(run.folder, ended("finished", steps=39, seconds=0.5, reason=""))
    told = list[Trial]()
    again = TrialSource(ready, tmp_path, ready.search.trials(tmp_path), told.append)
    for folder in list(again.unrecorded()):
        again.ended(folder)
    assert [(trial.number, trial.state, trial.steps) for trial in told] == [(0, "finished", 39)]
    assert list(again.unrecorded()) == []


def test_of_several_seeds_one_that_failed_ends_the_trial_once(prepared, tmp_path):
    ready = prepared(RATES, budget="1-trial", seeds_per_trial=2)
    told = list[Trial]()
    source = TrialSource(ready, tmp_path, ready.search.trials(tmp_path), told.append)
    first, second = source.next(), source.next()
    assert first is not None
    assert first.folder.name == "seed-0"
    end(source, first, "failed", 5)
    end(source, second, "finished", 39)
    assert [(trial.state, trial.reason) for trial in told] == [("failed", "by the test")]
