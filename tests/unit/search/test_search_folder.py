"""What a trial came to, by the folders of its runs at any moment at which a kill may have left
them.
"""

import math
from types import SimpleNamespace
from typing import cast

import pytest
from result_file import ended
from search_trials import NONE, of, studied, trial

from subquad.errors import RunError
from subquad.record.files import json_text, write_text
from subquad.record.integrity import write_result
from subquad.record.metrics import Record
from subquad.record.names import METRICS
from subquad.search.folder import came_to, place_of, trial_folder
from subquad.search.search import Search
from subquad.search.summary import trials_csv
from subquad.search.trial import Evaluation, Goal, Trial, best_of

GOAL = Goal("accuracy", "max")


def begun(root, number=0, **more):
    folder = trial_folder(root, "agf", number)
    folder.mkdir(parents=True)
    trial = Trial(
        candidate="agf",
        number=number,
        point={"train.lr": 0.1},
        state="running",
        total_steps=40,
        flops_per_step=1000,
        flops=40_000,
        seconds=99.0,
        **more,
    )
    return folder, trial


def evaluated(folder, *rows, split="validation"):
    records = [
        Record(
            kind="eval", step=step, epoch=0, seconds=step / 10, time=0, split=split, metrics=metrics
        )
        for step, metrics in rows
    ]
    write_text(folder / METRICS, "".join(record.line() for record in records))


def test_a_trial_that_has_not_begun(tmp_path):
    _, trial = begun(tmp_path)
    found = came_to(tmp_path, trial, GOAL)
    assert (found.state, found.steps, found.flops, found.best) == ("running", 0, 0, None)


def test_a_trial_whose_last_line_is_torn(tmp_path):
    folder, trial = begun(tmp_path)
    evaluated(folder, (10, {"accuracy": 0.5, "loss": 1.0}), (20, {"accuracy": math.nan}))
    with (folder / METRICS).open("a") as stream:
        stream.write('{"kind": "eval", "st')
    found = came_to(tmp_path, trial, GOAL)
    assert found.state == "running"
    assert found.best == Evaluation(step=10, value=0.5, loss=1.0)
    assert (found.steps, found.flops, found.seconds) == (20, 20_000, 2.0)


def test_only_evaluations_on_the_validation_split_count(tmp_path):
    folder, trial = begun(tmp_path)
    evaluated(folder, (10, {"accuracy": 0.5}), split="test")
    assert came_to(tmp_path, trial, GOAL).best is None


def test_a_failed_trial_is_charged_what_it_did(tmp_path):
    folder, trial = begun(tmp_path)
    evaluated(folder, (10, {"accuracy": 0.5}))
    write_result(folder, ended("failed", reason="lost"))
    found = came_to(tmp_path, trial, GOAL)
    assert (found.state, found.steps, found.flops, found.reason) == ("failed", 10, 10_000, "lost")


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (("finished", "finished"), "finished"),
        (("finished", None), "running"),
        ((None, "failed"), "failed"),
        (("pruned", "finished"), "pruned"),
    ],
)
def test_of_several_seeds_the_last_one_finishes_and_any_one_ends_a_trial(tmp_path, states, state):
    folder, trial = begun(tmp_path, seeds=(3, 4))
    for seed, status in zip((3, 4), states, strict=True):
        evaluated(folder / f"seed-{seed}", (10, {"accuracy": seed / 10, "loss": 1.0}))
        if status:
            write_result(folder / f"seed-{seed}", ended(status, steps=40, seconds=4.0))
    found = came_to(tmp_path, trial, GOAL)
    assert found.state == state
    assert found.best == Evaluation(step=10, value=0.35, loss=1.0)


def test_a_trial_is_told_by_its_folder(tmp_path):
    assert place_of(trial_folder(tmp_path, "agf", 7)) == ("agf", 7)
    assert place_of(trial_folder(tmp_path, "agf", 7) / "seed-3") == ("agf", 7)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("result.json", "[]", r"agf/00000/result\.json: damaged: ValueError: no JSON object; put"),
        (
            "result.json",
            json_text({}),
            r"result\.json: damaged: ValueError: mixer: field required",
        ),
        ("metrics.jsonl", "gone\n", r"agf/00000/metrics\.jsonl:1: damaged: no record$"),
    ],
)
def test_a_damaged_file_is_told(tmp_path, name, text, message):
    folder, trial = begun(tmp_path)
    write_text(folder / name, text)
    with pytest.raises(RunError, match=message):
        came_to(tmp_path, trial, GOAL)


def test_the_best_of_a_curve_and_of_several():
    short = [Evaluation(step=10, value=0.25), Evaluation(step=20, value=math.nan)]
    longer = [*short, Evaluation(step=30, value=0.5), Evaluation(step=40, value=0.5)]
    assert best_of([longer], "max") == longer[2]
    assert best_of([longer], "min") == longer[0]
    assert best_of([short, short[1:]], "max") is None
    assert best_of([], "max") is None


def test_a_trial_that_runs_has_not_spent_yet_what_it_is_expected_to():
    known = [trial(0, 0.5, state="finished", steps=7, flops=None), trial(1, flops=1e9, seconds=5.0)]
    search = SimpleNamespace(candidates=[of(NONE)], dimensions=[])
    head, ended, runs = trials_csv(cast("Search", search), {"": studied(known)}).splitlines()
    assert head == "candidate,number,state,objective,loss,steps,flops,seconds,reason"
    assert ended == ",0,finished,0.5,nan,7,unknown,0.0,"
    assert runs == ",1,running,,,,,,"
