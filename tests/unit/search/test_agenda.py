"""Which trial is given out next, and when a candidate's search is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_run import SMALL

from subquad.drivers.local import LocalExecutor
from subquad.experiment import Run, load_study
from subquad.runs import RESULT, write_json
from subquad.search.loop import MAX_FRUITLESS, Agenda, Lane
from subquad.search.prepare import Prepared, base_trial, prepare
from subquad.search.search import plan_search, sampler_of, trial_runs, trials_of
from subquad.search.settings import Settings

RATES = "dims: {train.lr: {loguniform: [1e-4, 1e-2]}}"


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Prepared]:
    """A search of the small experiment, ready to start."""
    monkeypatch.chdir(tmp_path)

    def one(space: str, *overrides: str, **settings) -> Prepared:
        (tmp_path / "small.yaml").write_text(SMALL)
        (tmp_path / "space.yaml").write_text(space)
        plan = load_study("small.yaml", overrides)
        return prepare(plan_search(plan, Settings("./space.yaml", **settings)), LocalExecutor())

    return one


def driver(prepared: Prepared, folder: Path) -> tuple[Agenda, Lane]:
    """What a driver that starts on this folder asks for trials."""
    search = prepared.search
    (candidate,) = search.candidates
    lane = Lane(candidate.label, sampler_of(search, candidate), prepared.fitters[candidate.label])
    trials = trials_of(search, folder)
    return Agenda(folder, trials, [lane], search.settings.limit, trial_runs(search), lambda _: None), lane


def end(ticket: Run | None, status: str, steps: int) -> None:
    """Record that a trial ended."""
    assert ticket is not None
    write_json(ticket.folder / RESULT, {"status": status, "steps": steps, "seconds": 0.0, "reason": "by the test"})


@pytest.mark.ci
def test_trials_that_fail_at_once_do_not_go_on_for_ever(prepared, tmp_path):
    agenda, lane = driver(prepared(RATES, budget="1e9flops"), tmp_path)
    count = 0
    while ticket := agenda.next():
        end(ticket, "failed", 0)
        count += 1
        assert count <= MAX_FRUITLESS
    assert count == MAX_FRUITLESS
    assert lane.over == f"{MAX_FRUITLESS} trials in a row failed, the last: by the test"


@pytest.mark.ci
def test_one_that_ends_otherwise_starts_the_count_anew(prepared, tmp_path):
    agenda, lane = driver(prepared(RATES, budget="1e9flops"), tmp_path)
    for number in range(MAX_FRUITLESS + 5):
        end(agenda.next(), "finished" if number == 10 else "failed", 0)
    assert agenda.next()
    assert not lane.over


def test_what_running_trials_leave_of_the_budget_is_given_out(prepared, tmp_path):
    ready = prepared(RATES, budget="1e15flops")
    one = base_trial(ready, ready.search.candidates[0]).flops
    ready = prepared(RATES, budget=f"{2.5 * one:.6e}flops")
    agenda, lane = driver(ready, tmp_path)
    running = [agenda.next(), agenda.next()]
    assert agenda.next() is None
    assert not lane.over
    for ticket in running:
        end(ticket, "pruned", 1)
    third = agenda.next()
    assert third is not None
    assert third.folder.name == "00002"
    end(third, "finished", 39)
    fourth = agenda.next()
    end(fourth, "finished", 39)
    assert agenda.next() is None
    assert lane.over == "budget used"
    again, lane = driver(ready, tmp_path)
    assert again.next() is None
    assert lane.over == "budget used"


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


@pytest.mark.parametrize(("budget", "state"), [("1e9flops", "infeasible"), ("3-trials", "waiting")])
def test_a_point_whose_flops_are_unknown_is_not_free(prepared, tmp_path, budget, state):
    (tmp_path / "uncounted.py").write_text(UNCOUNTED)
    space = "dims: {mixer.params.counts: {grid: [false, true]}}"
    ready = prepared(space, "mixer=./uncounted.py:Uncounted", budget=budget, sampler="grid")
    agenda, lane = driver(ready, tmp_path)
    while agenda.next():
        pass
    found = {one.point["mixer.params.counts"]: one for one in trials_of(ready.search, tmp_path).of(lane.label)}
    assert {counts: one.state for counts, one in found.items()} == {True: "waiting", False: state}
    if state == "infeasible":
        assert found[False].reason == (
            "its FLOPs cannot be counted (RuntimeError: needs a GPU), and the budget is one of FLOPs"
        )


@pytest.mark.ci
def test_constraints_that_leave_hardly_a_point_end_the_candidate_with_the_reason(prepared, tmp_path):
    """A continuous setting cannot be listed; about one draw in 240 keeps the constraint, so some points are found."""
    space = "dims: {backbone.params.dropout: {uniform: [0.0, 0.9]}, train.lr: {uniform: [1.0e-3, 0.0065]}}\n"
    bound = "constraints: [{less: [backbone.params.dropout, train.lr]}]"
    agenda, lane = driver(prepared(space + bound, budget="20-trials", seed=1), tmp_path)
    count = 0
    while ticket := agenda.next():
        end(ticket, "finished", 39)
        count += 1
    assert 0 < count < 20
    assert lane.over.startswith("space space: none of 1,000 random points keeps its constraints (less: ")
