"""A third party's metric, in percent, the less the better, under its own label: printed so
wherever it stands.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from subquad.cli.main import main
from subquad.plugin.metric import Metric
from subquad.record.metrics import read_records
from subquad.reports import document_of, read_report, write_document
from subquad.reports.drawing import training_charts
from subquad.reports.values import report_values

HEADER = "@problemName Toy\n@dimensions 2\n@classLabel true up down\n@data\n"
TOY = """
name: toy
protocol: honest
dataset: {{name: uea, params: {{problem: Toy, path: {data}}}}}
task: ./third.py:PLUGIN
backbone:
  name: encoder
  params: {{num_layers: 1, dim: 8, num_heads: 2, ffn_dim: 16, head: last}}
mixer: {{name: agf, params: {{order: 2}}}}
train: {{epochs: 4, batch_size: 8, lr: 1e-3}}
tracking: {{uri: off}}
"""
THIRD = Path(__file__).parents[1] / "support" / "third_party" / "third_metric.py"


def series(count: int, seed: int) -> str:
    """Rising and falling ramps of 6 steps, with noise."""
    generator = np.random.default_rng(seed)
    rows = list[str]()
    for number in range(count):
        ramp = np.linspace(-1, 1, 6) * (1 if number % 2 else -1)
        noisy = ramp + generator.normal(0, 1.0, (2, 6))
        channels = [",".join(f"{value:.4f}" for value in channel) for channel in noisy]
        rows.append(":".join([*channels, ("down", "up")[number % 2]]))
    return "\n".join(rows) + "\n"


def said(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    capsys.readouterr()
    assert main(list(map(str, arguments))) == 0, capsys.readouterr().err
    return capsys.readouterr().out


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    """An experiment file; its task is a file."""
    data = tmp_path / "data" / "Toy"
    data.mkdir(parents=True)
    (data / "Toy_TRAIN.ts").write_text(HEADER + series(40, 0))
    (data / "Toy_TEST.ts").write_text(HEADER + series(21, 1))
    shutil.copy(THIRD, tmp_path / "third.py")
    (tmp_path / "toy.yaml").write_text(TOY.format(data=tmp_path / "data"))
    assert main(["trust", str(tmp_path)]) == 0
    return tmp_path / "toy.yaml"


def test_it_is_printed_right_everywhere(toy, tmp_path, capsys):
    shown = said(capsys, "train", toy, "--local", "--root", tmp_path)
    (path,) = tmp_path.glob("runs/*/*/result.json")
    run, result = path.parent, json.loads(path.read_text())
    error = result["test"]["metrics"]["top1_error"]
    percent = f"{100 * error:.1f}"
    assert 0 < error < 1
    assert f"test top-1 error {percent} % on 21 samples" in shown
    evaluated = [record.metrics for record in read_records(run) if record.kind == "eval"]
    best = min(metrics["top1_error"] for metrics in evaluated)
    assert result["best"]["metrics"]["top1_error"] == best

    assert f"top-1 error (%) {percent}\n" in said(
        capsys, "eval", run, tmp_path / "data" / "Toy" / "Toy_TEST.ts"
    )
    assert "scores not recomputed, as " in said(capsys, "verify", run)
    swapped = said(capsys, "swap", run, "softmax", "--new-weights", "--out", tmp_path / "swap")
    assert "top-1 error (%)" in swapped

    (tmp_path / "third.py").unlink()  # a report needs no plugin
    report = read_report([run])
    (row,) = report.rows
    assert (row.compared.mode, row.score.mean) == ("min", error)
    for path in write_document(
        document_of(report), tmp_path / "report", ["md", "html", "csv", "tex"]
    ):
        text = path.read_text().replace("\\%", "%")
        as_data = path.suffix == ".csv"  # plain values under plain names, as in result.json
        assert ("top1_error" if as_data else "top-1 error (%)") in text, path
        assert (str(error) if as_data else percent) in text, path
    metric = report_values(report)["metrics"]["top1_error"]
    assert (metric["label"], metric["unit"], metric["mode"]) == ("top-1 error", "%", "min")
    curve, _ = training_charts(report)
    assert curve.y_label == "top-1 error (%)"


def test_a_search_prints_it_too(toy, tmp_path, capsys):
    (tmp_path / "lr.yaml").write_text("dims:\n  train.lr: {choice: [0.01, 0.001]}\n")
    shown = said(
        capsys,
        "tune",
        toy,
        "--space",
        tmp_path / "lr.yaml",
        "--budget",
        "2-trials",
        "--local",
        "--root",
        tmp_path,
    )
    assert "validation top-1 error " in shown
    assert " % at step" in shown
    assert "top1_error" not in shown


@pytest.mark.parametrize(
    ("given", "said_so"),
    [
        ({"mode": "up"}, "mode: got 'up', must be 'max' or 'min'"),
        ({"digits": 99}, "digits: got 99, must be from 0 to 15"),
        ({"answers": True}, "a share of answers must be in '%' or 'points'"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(given, said_so):
    with pytest.raises(ValueError, match=said_so):
        Metric(**given)
