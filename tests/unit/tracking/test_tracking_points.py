"""From records and results to what MLflow is sent."""

from __future__ import annotations

import math
import os

from subquad.record.files import write_json
from subquad.record.metrics import Place, Record
from subquad.tracking.mirror import Ending, about, ending, points_after
from subquad.tracking.values import Point, nonfinite_tags, points_of, points_under


def record(kind: str, split: str = "", **metrics: float) -> Record:
    return Record(
        kind=kind, step=7, epoch=0.7, seconds=1, time=12.3456, split=split, metrics=metrics
    )  # type: ignore[arg-type]


def end_of(folder, *, final: bool = False) -> Ending:
    found = ending(folder, final=final)
    assert found is not None
    return found


def test_each_kind_has_its_own_prefix():
    assert points_of(record("train", loss=1.0)) == [Point("train/loss", 1.0, 12345, 7)]
    assert points_of(record("eval", "validation", accuracy=0.5)) == [
        Point("validation/accuracy", 0.5, 12345, 7)
    ]
    assert points_of(record("system", cpu=3.0)) == [Point("system/cpu", 3.0, 12345, 7)]
    assert points_of(record("event", loss=1.0)) == []


def test_values_that_are_not_finite_are_told_in_a_tag():
    found = points_of(record("train", loss=math.inf, other=-math.inf, nan=math.nan, good=1.0))
    assert nonfinite_tags(found) == {
        "nonfinite.train/loss": "first at step 7: inf",
        "nonfinite.train/other": "first at step 7: -inf",
        "nonfinite.train/nan": "first at step 7: nan",
    }


def test_test_metrics_and_costs_are_the_last_ones(run_folder):
    run_folder.result(test={"metrics": {"accuracy": 0.5, "auc": "NaN", "top@5": None}, "step": 9})
    os.utime(run_folder.path / "result.json", (4, 4))
    accuracy, auc, *_ = end_of(run_folder.path).points
    assert accuracy == Point("test/accuracy", 0.5, 4000, 9)
    assert auc.key == "test/auc"
    assert math.isnan(auc.value)
    run_folder.result(test=None)
    assert [point.key for point in end_of(run_folder.path).points] == ["cost/steps"]
    assert points_under("a", {"b": None}, 1, 2) == []


def test_a_run_ends_as_its_result_says(run_folder):
    assert ending(run_folder.path, final=False) is None
    assert end_of(run_folder.path, final=True).status == "KILLED"
    for outcome, status in {
        "finished": "FINISHED",
        "failed": "FAILED",
        "stopped": "KILLED",
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
    os.utime(run_folder.path / "result.json", (5000, 5000))
    end = end_of(run_folder.path)
    assert (end.tags["subquad.reason"], end.time) == ("see https://***@h/x", 5000)


def test_a_study_ends_when_its_last_cell_does(tmp_path, make_run):
    study = tmp_path / "study"
    first, second = make_run(study / "cells" / "one"), make_run(study / "cells" / "two")
    (study / "study.yaml").write_text("matrix: {}\n")
    first.result("finished")
    assert ending(study, final=False) is None
    assert end_of(study, final=True).status == "KILLED"
    second.result("failed")
    assert end_of(study).status == "FAILED"
    second.result("finished")
    assert end_of(study).status == "FINISHED"
    make_run(study / "cells" / "three")
    assert ending(study, final=False) is None


def test_commit_and_plugins_become_tags(run_folder):
    plugin = {"kind": "mixer", "distribution": "subquad", "version": "1"}
    fields = {"git": {"commit": "abc", "dirty": True}, "plugins": [plugin]}
    write_json(run_folder.path / "environment.json", fields)
    assert end_of(run_folder.path, final=True).tags == {
        "mlflow.source.git.commit": "abc",
        "git.dirty": "True",
        "plugin.mixer": "subquad 1",
        "subquad.status": "killed",
    }


def test_a_run_alone_has_its_experiments_name_and_one_in_a_study_its_folders(
    run_folder, tmp_path, make_run
):
    study = tmp_path / "study"
    run = make_run(study / "cells" / "one")
    (study / "study.yaml").write_text("matrix: {}\n")
    labels = [about(folder).label for folder in (run_folder.path, run.path, study)]
    assert labels == ["demo", "one", "study"]


def test_what_a_run_says_of_itself_comes_from_its_files(run_folder):
    write_json(run_folder.path / "identity.json", {"digest": "d"})
    shown = about(run_folder.path)
    assert shown.params == {"name": "demo", "task.name": "classification", "mixer.name": "agf"}
    assert {name: tag for name, tag in shown.tags.items() if tag} == {
        "subquad.mixer": "agf",
        "subquad.experiment": "d",
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
