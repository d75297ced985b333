"""What is refused before data are prepared, and what `--dry-run` shows of a study."""

from __future__ import annotations

import json

import pytest

from subquad.cli.main import main
from subquad.experiment import load_study
from subquad.preparation.preflight import one_of_each

STUDY = """
name: two
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 16, num_heads: 2}}
train: {steps: 3, batch_size: 16, lr: 1e-3}
matrix:
  dataset:
    - {name: lra-listops, params: {train_size: 64, min_length: 8, max_length: 24}, label: listops}
    - {name: lra-text, params: {path: data/aclImdb}, label: text}
  mixer: [identity, softmax]
  seed: [0, 1]
"""
ONLY_RECALL = (
    "matrix.dataset=[{name: recall, params: {train_size: 64, validation_size: 32, test_size: 32}}]"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder with the study; prepared data go to `prepared`."""
    (tmp_path / "two.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "prepared"))
    return tmp_path


@pytest.mark.parametrize("option", ["--dry-run", "--local"])
def test_missing_path_of_any_cell_is_refused_before_data_are_generated(folder, option, capsys):
    assert main(["train", "two.yaml", option]) == 2
    errors = capsys.readouterr().err
    assert errors.endswith(
        f"dataset.params.path: {folder}/data/aclImdb does not exist (run text-identity-seed0); "
        "give matrix.dataset.text.params.path=FOLDER\n"
    )
    assert errors.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["two.yaml"]


def test_what_the_message_says_is_a_setting(folder):
    (folder / "texts").mkdir()
    plan = load_study("two.yaml", ["matrix.dataset.text.params.path=texts"])
    assert plan.runs[-1].experiment.dataset.params["path"] == str(folder / "texts")


def test_single_experiment_is_told_its_own_setting(folder, capsys):
    (folder / "one.yaml").write_text(
        "dataset: {name: lra-text, params: {path: gone}}\ntask: classification\nmixer: identity\n"
        "backbone: {name: encoder, params: {num_layers: 1, dim: 16, num_heads: "
        "2}}\ntrain: {steps: 1, "
        "batch_size: 8, lr: 1e-3}\n"
    )
    assert main(["train", "one.yaml", "--dry-run"]) == 2
    assert (
        f"{folder}/gone does not exist; give dataset.params.path=FOLDER\n"
        in capsys.readouterr().err
    )


def test_dry_run_counts_seeds_once_and_shows_every_cell(folder, monkeypatch, capsys):
    from subquad.preparation import costs

    real, counted = costs.training_cost, []
    monkeypatch.setattr(
        costs,
        "training_cost",
        lambda checked, spec: counted.append(spec) or real(checked, spec),
    )
    assert main(["train", "two.yaml", "--dry-run", "--json", ONLY_RECALL]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert len(counted) == 2
    by_label = {run.pop("label"): run for run in runs}
    assert sorted(by_label) == [
        f"recall-{mixer}-seed{seed}" for mixer in ("identity", "softmax") for seed in (0, 1)
    ]
    assert by_label["recall-softmax-seed0"] == by_label["recall-softmax-seed1"]
    assert (
        by_label["recall-softmax-seed0"]["flops_per_step"]
        > by_label["recall-identity-seed0"]["flops_per_step"]
        > 0
    )
    assert by_label["recall-softmax-seed0"]["samples"] == 64


def test_a_study_is_looked_at_by_one_run_of_each_kind(folder):
    seeds = ",".join(map(str, range(50)))
    study = load_study("two.yaml", [ONLY_RECALL, f"matrix.seed=[{seeds}]", "matrix.train.lr=[1,2]"])
    looked_at = one_of_each(study)
    assert len(study.runs) == 200
    assert [run.labels["mixer"] for run in looked_at.runs] == ["identity", "softmax"]
    assert looked_at.runs[0] is study.runs[0]
