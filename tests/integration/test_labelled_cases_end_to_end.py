"""A study that changes one setting at a time, from the command line to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import cli
from small_run import SMALL, only_run

CASES = """
matrix:
  change:
    - base
    - {label: order2, set: {mixer.params.order: 2}}
    - {label: order3, set: {mixer.params.order: 3}}
    - {label: a1.5, set: {mixer.params.jacobi_a: 1.5}}
  seed: [0, 1]
"""


def test_from_the_file_to_the_table(tmp_path: Path):
    (tmp_path / "small.yaml").write_text(SMALL + CASES)
    trained = cli(["train", "small.yaml", "--local", "train.epochs=1"], tmp_path)
    folder = only_run(tmp_path)
    names = [f"{name}-seed{seed}" for name in ("a1.5", "base", "order2") for seed in (0, 1)]
    assert sorted(path.name for path in (folder / "cells").iterdir()) == names
    assert "agf (jacobi_a=1.5)" in trained.stdout
    shown = cli(["report", str(folder), "--stats", "--charts"], tmp_path).stdout
    assert "recall, agf (honest): jacobi_a" in shown
    charts = {path.name for path in (folder / "charts").iterdir()}
    for name in ("jacobi_a", "order"):
        assert {f"recall-agf-honest-{name}.svg", f"recall-agf-honest-{name}.pdf"} <= charts
    reported = json.loads(cli(["report", str(folder), "--json"], tmp_path).stdout)
    a, order = reported["curves"]
    assert [(value["value"], value["base"]) for value in a["values"]] == [(1.0, True), (1.5, False)]
    assert [(value["value"], value["base"]) for value in order["values"]] == [(2, False), (3, True)]
    for value in order["values"]:
        label = "base" if value["base"] else "order2"
        runs = [
            json.loads((folder / "cells" / f"{label}-seed{seed}" / "result.json").read_text())
            for seed in (0, 1)
        ]
        assert value["score"]["mean"] == pytest.approx(
            sum(run["test"]["metrics"]["accuracy"] for run in runs) / 2
        )
        assert value["validation"]["mean"] == pytest.approx(
            sum(run["best"]["metrics"]["accuracy"] for run in runs) / 2
        )
    again = cli(["resume", str(folder), "--local"], tmp_path)
    assert "0 runs to do" in again.stdout


def test_refused_before_anything_starts(tmp_path: Path):
    (tmp_path / "small.yaml").write_text(SMALL + CASES.replace("order: 2", "order: 99"))
    refused = cli(["train", "small.yaml", "--local"], tmp_path, check=2)
    assert refused.stderr.strip().endswith(
        "mixer.params.order: got 99, must be a whole number >= 0 and <= 32 (run order2-seed0)"
    )
    (tmp_path / "small.yaml").write_text(SMALL + CASES)
    tuned = cli(["tune", "small.yaml", "--space", "agf", "--local"], tmp_path, check=2)
    assert tuned.stderr.startswith(
        "subquad: matrix.change: what changes settings one at a time is for subquad train"
    )
    assert not (tmp_path / "runs").exists()
