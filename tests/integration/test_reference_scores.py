"""Guesses without a model, from the data set through a real run to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from subquad.record.names import RESULT

import subquad
from subquad.data import TestKey
from subquad.reports import FORMATS, document_of, read_report
from subquad_datasets.listops import Config
from subquad_datasets.listops.dataset import ListOps
from subquad_datasets.recall.dataset import Recall

DATA = {
    "min_length": 5, "max_length": 20, "max_depth": 4, "max_args": 3,
    "train_size": 200, "validation_size": 40, "test_size": 100,
}  # fmt: skip
LISTOPS = f"""
name: small
dataset: {{name: lra-listops, params: {json.dumps(DATA)}}}
task: classification
backbone: {{name: encoder, params: {{num_layers: 1, dim: 16, num_heads: 2, ffn_dim: 32}}}}
mixer: identity
train: {{epochs: 1, batch_size: 50, lr: 1e-3}}
tracking: {{uri: off}}
"""


def test_listops_from_the_data_to_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "data"))
    (tmp_path / "listops.yaml").write_text(LISTOPS)
    (result,) = subquad.train(tmp_path / "listops.yaml", [], root=tmp_path)
    dataset = ListOps(Config.model_validate(DATA), tmp_path / "data")
    expected = dataset.reference_scores(dataset.split("test", TestKey("lra-listops", "test")))
    run = Path(result["folder"])
    assert json.loads((run / RESULT).read_text())["reference_scores"] == {
        "samples": 100,
        "scores": {"accuracy": expected},
    }
    assert len((run / "test-openings.jsonl").read_text().splitlines()) == 1
    text = FORMATS["md"](document_of(read_report([run])))
    for name, key in (("majority", "majority"), ("root operator", "root_operator")):
        assert f"| *reference: {name}* | *honest* | *–* | *{100 * expected[key]:.2f} " in text
    best = max(expected, key=lambda key: expected[key]).replace("_", " ")
    assert f"the best reference score ({best} {100 * max(expected.values()):.1f} %" in text


def test_a_failing_reference_score_costs_no_finished_run(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def broken(self, split):
        raise ZeroDivisionError("a bug of the data set's own")

    monkeypatch.setattr(Recall, "reference_scores", broken)
    (result,) = subquad.train(small, ["train.epochs=1"], root=tmp_path)
    assert (result["status"], result["reference_scores"]) == ("finished", None)
    assert "no reference scores: ZeroDivisionError: a bug of the data set's own" in result["notes"]
