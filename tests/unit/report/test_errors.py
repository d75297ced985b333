"""What is not a run, or is one of another format: one line each."""

from __future__ import annotations

import json

import pytest

from subquad.errors import ConfigError, RunError
from subquad.record.files import json_text, parse_object, write_json
from subquad.reports import read_report


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(
        RunError, match=r"neither a run \(no experiment.yaml\) nor a study \(no study.yaml\)$"
    ):
        read_report([tmp_path])


def test_a_study_without_runs(factory):
    with pytest.raises(RunError, match=r"a study \(study.yaml\) without runs so far$"):
        read_report([factory.study()])


def test_a_result_of_another_format(factory):
    with pytest.raises(
        RunError, match=r"result.json: result format 2, this subquad reads format 1$"
    ):
        read_report([factory.run("one", format=2)])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            lambda text: "{",
            "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        (lambda text: "[1]", "no JSON object"),
        (lambda text: "[" * 100_000, "nested deeper than 50 levels"),
        (lambda text: json_text({"files": {}}), "status: field required"),
        (lambda text: "{}", "it was damaged or edited: its `check` does not fit its values"),
        (
            lambda text: text.replace("0.9", "0.8"),
            "it was damaged or edited: its `check` does not fit its values",
        ),
        (
            lambda text: json_text(
                {
                    **parse_object(text),
                    "reference_scores": {"samples": 5, "scores": {"accuracy": {"a": 1.5}}},
                }
            ),
            "reference_scores: accuracy must be a number from 0 to 1",
        ),
    ],
)
def test_a_result_that_cannot_be_believed_is_damaged_and_counts_for_nothing(
    factory, damage, reason: str
):
    study = factory.study()
    path = factory.cell(study, seed=0) / "result.json"
    factory.cell(study, seed=1)
    path.write_text(damage(path.read_text()))
    (row,) = read_report([study]).rows
    assert row.seeds == (1,)
    assert row.status() == f"1 finished, 1 damaged (result.json: {reason})"


@pytest.mark.parametrize(
    "name", ["experiment.yaml", "metrics.jsonl", "environment.json", "predictions.safetensors"]
)
def test_a_row_beside_whose_result_a_file_changed_is_not_verified(factory, answers, name: str):
    run = factory.run("one", correct=answers(40, 9))
    size = (run / name).stat().st_size
    with (run / name).open("a") as stream:
        stream.write("\n")
    (row,) = read_report([run]).rows
    assert (
        row.status()
        == f"1 not verified ({name} has changed: it has {size + 1} bytes, its manifest says {size})"
    )
    assert "not verified" in row.first.provenance()
    (run / name).unlink()
    if name != "experiment.yaml":
        (row,) = read_report([run]).rows
        assert row.status() == f"1 not verified ({name} is missing)"


def test_a_result_that_names_no_files_is_not_verified(factory):
    run = factory.run("one")
    data = json.loads((run / "result.json").read_text())
    write_json(run / "result.json", {key: value for key, value in data.items() if key != "files"})
    (row,) = read_report([run]).rows
    assert row.status().startswith(
        "1 not verified (result.json does not say which files it stands on"
    )


def test_a_run_of_a_study_that_lost_its_experiment_is_named(factory):
    study = factory.study()
    (factory.cell(study) / "experiment.yaml").unlink()
    with pytest.raises(
        RunError, match=r"experiment.yaml: missing; `subquad resume .*study` writes it again$"
    ):
        read_report([study])


def test_an_experiment_that_is_no_yaml(factory):
    run = factory.run("one")
    (run / "experiment.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"experiment.yaml:\d+:\d+: "):
        read_report([run])


def test_an_experiment_without_a_mixer(factory):
    run = factory.run("one")
    (run / "experiment.yaml").write_text("dataset: {name: uea}\n")
    with pytest.raises(RunError, match=r"experiment.yaml: mixer: field required$"):
        read_report([run])
