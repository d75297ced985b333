"""From records and results to what MLflow is sent."""

from __future__ import annotations

import math
import os
from pathlib import Path

from result_file import ended

from subquad.record.files import write_json
from subquad.record.metrics import Place, Record
from subquad.tracking.mirror import About, Point, about, points_after, points_of


def end_of(folder: Path, *, final: bool = False) -> About:
    found = about(folder, final=final)
    assert found.status != "RUNNING"
    return found


def written_at(time: int, folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (time, time))


def test_each_kind_has_its_own_prefix(run_folder):
    run_folder.record(1, {"loss": 1.0})
    run_folder.record(2, {"accuracy": 0.5}, kind="eval", split="validation")
    run_folder.record(3, {"cpu": 3.0}, kind="system")
    run_folder.record(4, {}, kind="event")
    found, _ = points_after(run_folder.path, Place())
    assert found == [
        Point("train/loss", 1.0, 1_700_001_001_000, 1),
        Point("validation/accuracy", 0.5, 1_700_001_002_000, 2),
        Point("system/cpu", 3.0, 1_700_001_003_000, 3),
    ]


def test_an_infinity_is_shown_as_no_number():
    found = points_of({"loss": math.inf, "other": "-Infinity", "nan": math.nan, "good": 1.0}, 1, 7)
    assert [math.isnan(point.value) for point in found] == [True, True, True, False]


def test_test_metrics_and_costs_are_the_last_ones(run_folder):
    run_folder.result(test={"metrics": {"accuracy": 0.5, "auc": "NaN", "top@5": None}, "step": 9})
    written_at(4, run_folder.path)
    accuracy, auc, *_ = end_of(run_folder.path).points
    assert accuracy == Point("test/accuracy", 0.5, 4000, 9)
    assert auc.key == "test/auc"
    assert math.isnan(auc.value)
    run_folder.result(test=None)
    assert [point.key for point in end_of(run_folder.path).points] == ["cost/steps"]
    assert points_of({"a/b": None}, 1, 2) == []


def test_a_run_ends_as_its_result_says(run_folder):
    assert about(run_folder.path).status == "RUNNING"
    assert end_of(run_folder.path, final=True).status == "KILLED"
    for outcome, status in {
        "finished": "FINISHED",
        "failed": "FAILED",
        "pruned": "FINISHED",
    }.items():
        run_folder.result(
            outcome, reason="loss inf at https://u:p@h/x" if outcome == "failed" else None
        )
        end = end_of(run_folder.path)
        assert (end.status, end.tags["subquad.status"], end.tags["subquad.protocol"]) == (
            status,
            outcome,
            "honest",
        )
    run_folder.result("failed", reason="see https://u:p@h/x")
    written_at(5000, run_folder.path)
    end = end_of(run_folder.path)
    assert (end.tags["subquad.reason"], end.time) == ("see https://***@h/x", 5000)


def test_a_study_ends_when_its_last_cell_does(tmp_path, make_run):
    study = tmp_path / "study"
    first, second = make_run(study / "cells" / "one"), make_run(study / "cells" / "two")
    (study / "study.yaml").write_text("matrix: {}\n")
    first.result("finished")
    assert about(study).status == "RUNNING"
    assert end_of(study, final=True).status == "KILLED"
    second.result("failed")
    assert end_of(study).status == "FAILED"
    second.result("finished")
    assert end_of(study).status == "FINISHED"
    make_run(study / "cells" / "three")
    assert about(study).status == "RUNNING"


def test_commit_and_plugins_become_tags(run_folder):
    plugin = {"kind": "mixer", "distribution": "subquad", "version": "1"}
    fields = {"git": {"commit": "abc", "dirty": True}, "plugins": [plugin]}
    write_json(run_folder.path / "environment.json", fields)
    assert end_of(run_folder.path, final=True).tags == {
        "mlflow.source.git.commit": "abc",
        "git.dirty": True,
        "subquad.plugins": [plugin],
        "subquad.status": "killed",
    }


def test_what_is_alone_is_named_like_its_folder_below_runs_and_a_part_by_its_own(
    run_folder, tmp_path, make_run
):
    study = tmp_path / "study"
    run = make_run(study / "cells" / "one")
    (study / "study.yaml").write_text("matrix: {}\n")
    labels = [about(folder).label for folder in (run_folder.path, run.path, study)]
    assert labels == [f"demo/{run_folder.path.name}", "one", f"{tmp_path.name}/study"]


def test_what_a_run_says_of_itself_comes_from_its_files(run_folder):
    write_json(run_folder.path / "identity.json", ended("", digest="d"))
    shown = about(run_folder.path)
    assert shown.params == {"name": "demo", "task.name": "classification", "mixer.name": "agf"}
    assert shown.tags == {
        "subquad.mixer": "agf",
        "subquad.dataset": "JapaneseVowels",
        "subquad.protocol": "honest",
        "subquad.experiment": "d",
        "subquad.status": "running",
    }


def test_points_are_read_once_while_the_file_grows_and_a_torn_line_waits_for_its_end(run_folder):
    run = run_folder.path
    assert points_after(run, Place()) == ([], Place())
    run_folder.train(range(1, 3))
    line = Record(kind="train", step=3, epoch=0.3, seconds=3, time=3, metrics={"loss": 1.0}).line()
    run_folder.append(line[:20])
    first, place = points_after(run, Place())
    run_folder.append(line[20:])
    run_folder.train(range(3, 4), attempt=2)
    second, place = points_after(run, place)
    losses = [
        [point.step for point in part if point.key == "train/loss"] for part in (first, second)
    ]
    assert losses == [[1, 2], [3, 3]]
    assert points_after(run, place) == ([], place)


def test_an_unreadable_line_is_passed_over_and_named(run_folder):
    run_folder.train(range(1, 2))
    run_folder.append('\0\0\0\n[1]\n{"kind": "train"}\n')
    run_folder.train(range(2, 3))
    found, place = points_after(run_folder.path, Place())
    assert [point.step for point in found if point.key == "train/loss"] == [1, 2]
    assert place.unreadable == ("metrics.jsonl:2", "metrics.jsonl:3", "metrics.jsonl:4")


def test_secrets_are_in_nothing_that_a_folder_shows(run_folder):
    settings = "{api_key: hunter2, same_key: true, at: 'http://h/?token=hunter2&a=1'}"
    (run_folder.path / "experiment.yaml").write_text(
        f"dataset: {{name: x, params: {settings}}}\ntracking: {{uri: 'https://me:hunter2@host/x'}}\n"
    )
    what = about(run_folder.path)
    assert what.params == {
        "dataset.name": "x",
        "dataset.params.api_key": "***",
        "dataset.params.same_key": True,
        "dataset.params.at": "http://h/?token=***&a=1",
        "tracking.uri": "https://***@host/x",
    }
    assert "hunter2" not in str(what)
