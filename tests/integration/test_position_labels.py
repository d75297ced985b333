"""Data sets that label positions: through the engine, however a batch is cut; a head that does
not fit is refused.
"""

from __future__ import annotations

import numpy as np
import pytest
from command import cli
from result_file import read_result
from safetensors.numpy import load_file
from small_run import run_here
from subquad.record.names import PREDICTIONS

from subquad.record.metrics import read_records

MQAR = (
    "dataset={name: mqar, params: {num_pairs: 2, length: 9, train_size: 100, "
    "validation_size: 20, test_size: 30}}",
    "backbone.params.head=each",
    "backbone.params.dropout=0.0",
    "train.precision=fp64",
    "train.epochs=2",
)


def test_a_run_scores_every_labelled_position(ticket):
    run = ticket(*MQAR)
    assert run_here(run) == "finished"
    result, kept = read_result(run.folder), load_file(run.folder / PREDICTIONS)
    assert result is not None
    assert result["flops_per_step"] > 0
    assert (result["test"]["samples"], kept["label"].shape) == (30, (30, 9))
    labelled = kept["label"] >= 0
    assert (labelled.sum(axis=1) == 2).all()
    right = (kept["predicted"] == kept["label"])[labelled].mean()
    assert result["test"]["metrics"]["accuracy"] == pytest.approx(float(right))


def test_accumulation_gives_the_same_curve(ticket):
    whole, cut = ticket(*MQAR), ticket(*MQAR, "train.micro_batch=3")
    run_here(whole)
    run_here(cut)
    curves = [
        [record.metrics["loss"] for record in read_records(run.folder) if record.kind == "train"]
        for run in (whole, cut)
    ]
    np.testing.assert_allclose(*curves, rtol=0, atol=1e-10)


def test_a_head_that_does_not_fit_is_refused_in_one_line_before_a_folder_is_made(small, tmp_path):
    wrong = [setting for setting in MQAR if setting != "backbone.params.head=each"]
    done = cli(["train", str(small), "--local", "--root", str(tmp_path), *wrong], tmp_path, check=2)
    assert done.stderr.splitlines()[-1].endswith("but this data set labels positions: use each")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
