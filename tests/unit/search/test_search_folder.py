"""What the folders of trials say, at any moment at which a kill may have left them."""

import math
from dataclasses import replace

import pytest
from result_file import ended
from search_trials import curve, trial

from subquad.errors import RunError
from subquad.record.files import json_text, write_text
from subquad.record.integrity import write_result
from subquad.record.metrics import Record
from subquad.record.names import METRICS
from subquad.search import folder
from subquad.search.folder import Trials, place_of, trial_folder
from subquad.search.trial import Goal, Trial

GOALS = {"agf": Goal("accuracy", "max")}


def begun(root, number, **more):
    fields = {
        "point": {"train.lr": 0.1},
        "settings": {"train.lr": 0.1},
        "total_steps": 40,
        "flops_per_step": 1000,
    }
    Trials(root, GOALS).write(
        Trial(candidate="agf", number=number, state="waiting", **fields, **more)
    )
    return trial_folder(root, "agf", number)


def first(folder):
    return Trials(folder.parent.parent.parent, GOALS).trial("agf", 0)


def evaluated(folder, *rows, split="validation"):
    records = [
        Record(
            kind="eval", step=step, epoch=0, seconds=step / 10, time=0, split=split, metrics=metrics
        )
        for step, metrics in rows
    ]
    write_text(folder / METRICS, "".join(record.line() for record in records))


def test_a_folder_without_its_trial_is_none(tmp_path):
    trial_folder(tmp_path, "agf", 0).mkdir(parents=True)
    assert Trials(tmp_path, GOALS).of("agf") == []
    assert Trials(tmp_path, GOALS).of("softmax") == []


def test_a_trial_that_waits(tmp_path):
    found = first(begun(tmp_path, 0))
    assert (found.state, found.steps, found.flops, found.curve) == ("waiting", 0, 0, ())
    assert found.point == {"train.lr": 0.1}


def test_a_trial_that_runs_and_one_whose_last_line_is_torn(tmp_path):
    folder = begun(tmp_path, 0)
    write_text(folder / "attempts.jsonl", "")
    evaluated(folder, (10, {"accuracy": 0.5, "loss": 1.0}), (20, {"accuracy": math.nan}))
    with (folder / METRICS).open("a") as stream:
        stream.write('{"kind": "eval", "st')
    found = first(folder)
    assert found.state == "running"
    assert [evaluation.step for evaluation in found.curve] == [10, 20]
    assert (found.curve[0].value, found.curve[0].loss) == (0.5, 1.0)
    assert math.isnan(found.curve[1].value)
    assert math.isnan(found.curve[1].loss)
    assert (found.steps, found.flops, found.seconds) == (20, 20_000, 2.0)


def test_only_evaluations_on_the_validation_split_count(tmp_path):
    folder = begun(tmp_path, 0)
    evaluated(folder, (10, {"accuracy": 0.5}), split="test")
    assert first(folder).curves == ()


def test_a_trial_that_ended_is_read_once(tmp_path):
    folder = begun(tmp_path, 0)
    trials = Trials(tmp_path, GOALS)
    assert trials.of("agf")[0].state == "waiting"
    write_result(folder, ended("pruned", steps=30, seconds=7.5, reason="too bad"))
    (found,) = trials.of("agf")
    assert (found.state, found.steps, found.flops, found.seconds) == ("pruned", 30, 30_000, 7.5)
    assert found.reason == "too bad"
    (folder / "result.json").unlink()
    assert trials.of("agf") == [found]
    assert trials.trial("agf", 0) is found


def test_a_failed_trial_is_charged_what_it_did(tmp_path):
    folder = begun(tmp_path, 0)
    evaluated(folder, (10, {"accuracy": 0.5}))
    write_result(folder, ended("failed", reason="lost"))
    found = first(folder)
    assert (found.state, found.steps, found.flops, found.reason) == ("failed", 10, 10_000, "lost")


def test_an_infeasible_point(tmp_path):
    trial = Trial(
        candidate="agf", number=3, point={"a": 1}, state="infeasible", reason="a: must be 2"
    )
    Trials(tmp_path, GOALS).write(trial)
    assert Trials(tmp_path, GOALS).trial("agf", 3) == trial


def test_trials_are_told_by_number(tmp_path):
    for number in (2, 0, 1):
        begun(tmp_path, number)
    assert [trial.number for trial in Trials(tmp_path, GOALS).of("agf")] == [0, 1, 2]
    assert place_of(trial_folder(tmp_path, "agf", 7)) == ("agf", 7)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("trial.json", "{", r"agf/00000/trial\.json: is no JSON object; put it back"),
        (
            "trial.json",
            json_text({}),
            r"agf/00000/trial\.json: candidate: Field required; put it back",
        ),
        ("result.json", "[]", r"agf/00000/result\.json: is no JSON object"),
        ("result.json", json_text({}), r"agf/00000/result\.json: does not say how the trial ended"),
        ("metrics.jsonl", "gone\n", r"agf/00000/metrics\.jsonl:1: damaged: no record; put it back"),
    ],
)
def test_a_damaged_file_is_told_and_never_taken_for_a_trial_to_come(tmp_path, name, text, message):
    write_text(begun(tmp_path, 0) / name, text)
    with pytest.raises(RunError, match=message):
        Trials(tmp_path, GOALS).of("agf")


def test_a_result_without_its_trial_is_damage(tmp_path):
    folder = begun(tmp_path, 0)
    write_result(folder, ended("finished"))
    (folder / "trial.json").unlink()
    with pytest.raises(RunError, match=r"trial\.json: is missing beside result\.json"):
        first(folder)


@pytest.mark.parametrize("name", ["00001.bak", "1", "00000-copy"])
def test_a_folder_beside_the_trials_is_refused_by_name(tmp_path, name):
    begun(tmp_path, 0).with_name(name).mkdir()
    with pytest.raises(
        RunError, match=f"agf/{name}: not a trial's folder; move it out of the search"
    ):
        Trials(tmp_path, GOALS).of("agf")


def test_a_copy_under_another_number_is_refused(tmp_path):
    begun(tmp_path, 0).rename(trial_folder(tmp_path, "agf", 3))
    with pytest.raises(RunError, match=r"agf/00003/trial\.json: is of trial 0 of agf"):
        Trials(tmp_path, GOALS).of("agf")


def test_a_trial_that_ended_is_read_once_and_a_new_one_is_found(tmp_path, monkeypatch):
    numbers = []

    def counted(path, *arguments):
        numbers.append(int(path.name))
        return real(path, *arguments)

    real = folder._read
    monkeypatch.setattr(folder, "_read", counted)
    write_result(begun(tmp_path, 0), ended("finished"))
    begun(tmp_path, 1)
    trials = Trials(tmp_path, GOALS)
    assert [trial.state for trial in trials.of("agf")] == ["finished", "waiting"]
    numbers.clear()
    begun(tmp_path, 2)
    assert [trial.number for trial in trials.of("agf")] == [0, 1, 2]
    assert numbers == [1, 2]
    found = trials.trial("agf", 0)
    assert found is not None
    assert numbers == [1, 2]


def test_the_best_of_a_longer_curve_is_looked_for_anew():
    short = trial(0, 0.25)
    assert short.best("max") == short.best("min") == short.curve[0]
    longer = replace(short, curves=(curve(0.25, 0.5),))
    assert longer.best("max") == longer.curve[1]
    assert longer.best("min") == longer.curve[0]
