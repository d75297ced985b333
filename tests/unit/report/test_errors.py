"""What is not a run, or is one of another format: one line each."""

from __future__ import annotations

import json

import pytest

from subquad.errors import ConfigError, RunError
from subquad.report import read_report


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(RunError, match=r"neither a run \(no experiment.yaml\) nor a study \(no study.yaml\)$"):
        read_report([tmp_path])


def test_a_study_without_runs(factory):
    with pytest.raises(RunError, match=r"a study \(study.yaml\) without runs so far$"):
        read_report([factory.study()])


def test_a_result_of_another_format(factory):
    with pytest.raises(RunError, match=r"result.json: result format 2, this subquad reads format 1$"):
        read_report([factory.run("one", format=2)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"result.json: not readable as JSON \(JSONDecodeError\)$"),
        ("[1]", r"result.json: result format None, this subquad reads format 1$"),
    ],
)
def test_a_result_that_is_no_object(factory, text: str, message: str):
    run = factory.run("one")
    (run / "result.json").write_text(text)
    with pytest.raises(RunError, match=message):
        read_report([run])


def test_a_result_with_a_wrong_value_names_the_key(factory):
    run = factory.run("one")
    data = json.loads((run / "result.json").read_text())
    data["test"]["metrics"]["accuracy"] = "high"
    (run / "result.json").write_text(json.dumps(data))
    with pytest.raises(RunError, match=r"result.json: test.metrics.accuracy: input should be a valid number"):
        read_report([run])


def test_an_experiment_that_is_no_yaml(factory):
    run = factory.run("one")
    (run / "experiment.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"experiment.yaml:\d+:\d+: "):
        read_report([run])


def test_an_experiment_without_a_mixer(factory):
    run = factory.run("one")
    (run / "experiment.yaml").write_text("dataset: {name: uea}\n")
    with pytest.raises(RunError, match=r"experiment.yaml: mixer.name: missing$"):
        read_report([run])
