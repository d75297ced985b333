"""From records and results to what MLflow is sent."""

from __future__ import annotations

import math
import os

from subquad.runs import Record
from subquad.tracking.outcome import environment_tags, run_outcome, study_outcome
from subquad.tracking.points import Point, final_points, nonfinite_tags, points, storable


def record(kind: str, split: str = "", **metrics: float) -> Record:
    return Record(kind=kind, step=7, epoch=0.7, seconds=1, time=12.3456, split=split, metrics=metrics)  # type: ignore[arg-type]


def test_each_kind_has_its_own_prefix():
    assert points(record("train", loss=1.0)) == [Point("train/loss", 1.0, 12345, 7)]
    assert points(record("eval", "validation", accuracy=0.5)) == [Point("validation/accuracy", 0.5, 12345, 7)]
    assert points(record("system", cpu=3.0)) == [Point("system/cpu", 3.0, 12345, 7)]
    assert points(record("event", loss=1.0)) == []


def test_infinities_are_told_in_a_tag_and_not_sent():
    found = points(record("train", loss=math.inf, other=-math.inf, nan=math.nan, good=1.0))
    assert [point.key for point in storable(found)] == ["train/nan", "train/good"]
    assert nonfinite_tags(found) == {
        "nonfinite.train/loss": "first at step 7: inf",
        "nonfinite.train/other": "first at step 7: -inf",
        "nonfinite.train/nan": "first at step 7: nan",
    }


def test_test_metrics_become_final_ones():
    result = {"test": {"metrics": {"accuracy": 0.5, "auc": "NaN", "top@5": None}, "step": 9}}
    accuracy, auc = final_points(result, 4000)
    assert accuracy == Point("final/accuracy", 0.5, 4000, 9)
    assert auc.key == "final/auc"
    assert math.isnan(auc.value)
    assert final_points({"test": None, "steps": 3}, 4000) == []


def test_a_run_ends_as_its_result_says(run_folder):
    assert run_outcome(run_folder.path, final=False) is None
    assert run_outcome(run_folder.path, final=True).status == "KILLED"
    for said, status in {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}.items():
        run_folder.result(said, reason="loss inf at https://u:p@h/x" if said == "failed" else None)
        end = run_outcome(run_folder.path, final=False)
        assert (end.status, end.tags["subquad.status"], end.tags["subquad.protocol"]) == (status, said, "honest")
    run_folder.result("failed", reason="see https://u:p@h/x")
    os.utime(run_folder.path / "result.json", (5000, 5000))
    end = run_outcome(run_folder.path, final=False)
    assert (end.tags["subquad.reason"], end.ended) == ("see https://***@h/x", 5000)


def test_a_study_ends_when_its_last_cell_does(tmp_path, make_run):
    study = tmp_path / "study"
    one, two = make_run(study / "cells" / "one"), make_run(study / "cells" / "two")
    (study / "study.yaml").write_text("matrix: {}\n")
    one.result("finished")
    assert study_outcome(study, [], final=False) is None
    assert study_outcome(study, [], final=True).status == "KILLED"
    two.result("failed")
    assert study_outcome(study, [], final=False).status == "FAILED"
    two.result("finished")
    assert study_outcome(study, [], final=False).status == "FINISHED"
    assert study_outcome(study, [study / "cells" / "three"], final=False) is None


def test_commit_and_plugins_become_tags(run_folder):
    assert environment_tags(run_folder.path) == {}
    (run_folder.path / "environment.json").write_text(
        '{"git": {"commit": "abc", "dirty": true},'
        '"plugins": [{"kind": "mixer", "distribution": "subquad", "version": "1"}]}'
    )
    assert environment_tags(run_folder.path) == {
        "mlflow.source.git.commit": "abc",
        "git.dirty": "True",
        "plugin.mixer": "subquad 1",
    }
