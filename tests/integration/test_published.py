"""Published rows, from the data set through a real run to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import subquad
from subquad.record.names import RESULT
from subquad.reports import read_report

DATA = {
    "min_length": 5, "max_length": 20, "max_depth": 4, "max_args": 3,
    "train_size": 200, "validation_size": 40, "test_size": 100,
}  # fmt: skip
LISTOPS = f"""
name: small
dataset: {{name: lra-listops, params: {json.dumps(DATA)}}}
task: classification
backbone: {{name: encoder, params: {{num_layers: 1, dim: 16, num_heads: 2, ffn_dim: 32}}}}
mixer: softmax
train: {{epochs: 1, batch_size: 50, lr: 1e-3}}
tracking: {{uri: off}}
"""


def test_a_run_finds_the_published_rows_of_its_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "data"))
    (tmp_path / "listops.yaml").write_text(LISTOPS)
    (result,) = subquad.train(tmp_path / "listops.yaml", [], root=tmp_path)
    run = Path(result["folder"])
    assert json.loads((run / RESULT).read_text())["published_keys"] == {"benchmark": "listops"}
    report = read_report([run])
    found = report.beside[report.rows[0]]
    assert [(row.published.source, row.published.value) for row in found] == [
        ("wi2025agf", 37.1),
        ("francois2025cur", 37.11),
    ]
    assert all("stand-in data, published: the real data" in row.reasons for row in found)


def test_a_data_set_of_its_own_name_has_no_key(small: Path, tmp_path: Path):
    (result,) = subquad.train(small, ["train.epochs=1"], root=tmp_path)
    assert "published_keys" not in result
