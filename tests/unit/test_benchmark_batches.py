"""Plumbing of benchmarks/batches.py: what is timed. No time is judged."""

import multiprocessing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from benchmark import benchmark

from subquad.engine.group import Group
from subquad.engine.parts import build_parts
from subquad.experiment import Run, load_study
from subquad_tools.bench.step import Steps

bench = benchmark("batches")
_HERE, _LOADER, _TRAINING = bench._HERE, bench._LOADER, bench._TRAINING
WAYS = [_HERE, _LOADER, _TRAINING]


def tiny(root: Path) -> Run:
    settings = (
        "match=null",
        "matrix.dataset=[recall]",
        "matrix.mixer=[identity]",
        "backbone.params.ffn_dim=128",
        "dataset.params.train_size=60",
        "dataset.params.validation_size=16",
        "train.batch_size=8",
        "train.micro_batch=3",
    )
    return replace(load_study("controls", settings).runs[0], data_root=root)


def blocks(here: float, loader: float, training: float) -> dict[str, tuple[float, float]]:
    walls = {_HERE: here, _LOADER: loader, _TRAINING: training}
    return {way: (wall, wall / 2) for way, wall in walls.items()}


def test_rates_are_medians_and_ratios_go_round_by_round():
    rounds = [blocks(1.0, 2.0, 8.0), blocks(2.0, 5.0, 100.0), blocks(4.0, 4.0, 20.0)]
    found = [bench._rate(way, rounds) for way in WAYS]
    assert [row["way"] for row in found] == WAYS
    assert [row["wall_ms"] for row in found] == [2000.0, 4000.0, 20_000.0]
    assert [row["cpu_ms"] for row in found] == [1000.0, 2000.0, 10_000.0]
    assert [row["per_second"] for row in found] == [0.5, 0.25, 0.05]
    assert [row["over_training"] for row in found] == [8.0, 5.0, 1.0]


def test_a_block_has_one_action_at_least():
    calls = []
    bench._block(lambda: calls.append(1), 0.0)
    assert calls == [1]
    bench._block(lambda: calls.append(1), 0.01)
    assert len(calls) > 2


def test_a_round_takes_what_the_loader_has_ready_before_its_block(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_BLOCK_SECONDS", 0.0)
    parts = build_parts(tiny(tmp_path), Group())
    steps, order = Steps(parts), []
    before = steps.micros
    bench._round({way: partial(order.append, way) for way in (_LOADER, _HERE, _TRAINING)}, steps)
    assert order == [*[_LOADER] * bench._AHEAD, _LOADER, _HERE, _TRAINING]
    assert steps.micros is not before


@pytest.mark.ci
def test_measured_with_a_loader_process_that_ends(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_BLOCK_SECONDS", 0.0)
    torch.manual_seed(0)
    found = bench.measure_input(tiny(tmp_path), rounds=1)
    assert [rate["way"] for rate in found["rates"]] == WAYS
    assert all(rate["wall_ms"] > 0 and rate["over_training"] > 0 for rate in found["rates"])
    assert found["rates"][-1]["over_training"] == 1.0
    assert found["arrays"]["inputs"].startswith("int64 3x")
    length = int(found["arrays"]["inputs"].partition("x")[2])
    assert found["mbytes"] == pytest.approx(8 * (length * (8 + 1) + 8) / 1e6)
    assert found["batch_size"] == 8
    assert found["start_seconds"] > 0
    assert multiprocessing.active_children() == []
