"""Plumbing of `subquad bench input`: what is timed, and that it is what a run does. No time is judged."""

import itertools
import json
import multiprocessing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from subquad.bench import input as bench
from subquad.bench.input import _HERE, _LOADER, _TRAINING, _rate, measure_input
from subquad.cli.main import main
from subquad.engine.group import Group
from subquad.engine.parts import build_parts
from subquad.experiment import Run, load_study

WAYS = [_HERE, _LOADER, _TRAINING]
TINY = (
    "control-recall",
    "dataset.params.train_size=60",
    "dataset.params.validation_size=16",
    "train.batch_size=8",
    "train.micro_batch=3",
    "matrix.mixer=[identity]",
)


def tiny(root: Path, *overrides: str) -> Run:
    target, *rest = TINY
    return replace(load_study(target, (*rest, *overrides)).runs[0], data_root=root)


def blocks(here: float, loader: float, training: float) -> dict[str, tuple[float, float]]:
    walls = {_HERE: here, _LOADER: loader, _TRAINING: training}
    return {way: (wall, wall / 2) for way, wall in walls.items()}


def test_rates_are_medians_and_ratios_go_round_by_round():
    rounds = [blocks(1.0, 2.0, 8.0), blocks(2.0, 5.0, 100.0), blocks(4.0, 4.0, 20.0)]
    found = [_rate(way, rounds) for way in WAYS]
    assert [one["way"] for one in found] == WAYS
    assert [one["wall_ms"] for one in found] == [2000.0, 4000.0, 20_000.0]
    assert [one["cpu_ms"] for one in found] == [1000.0, 2000.0, 10_000.0]
    assert [one["per_second"] for one in found] == [0.5, 0.25, 0.05]
    assert [one["over_training"] for one in found] == [8.0, 5.0, 1.0]


def test_a_block_has_one_action_at_least():
    seen = []
    bench._block(lambda: seen.append(1), 0.0)
    assert seen == [1]
    bench._block(lambda: seen.append(1), 0.01)
    assert len(seen) > 2


def test_batches_are_those_of_a_run_and_never_end(tmp_path):
    parts = build_parts(tiny(tmp_path), Group())
    assert len(parts.training) == 60
    with_it = [len(micro["labels"]) for micros, _ in itertools.islice(bench._feed(parts, 0), 16) for micro, _ in micros]
    epoch = [3, 3, 2] * 7 + [3, 1]
    assert with_it == epoch * 2


def test_steps_are_real_and_leave_the_weights_as_they_are(tmp_path):
    parts = build_parts(tiny(tmp_path), Group())
    steps = bench._Steps(parts)
    before = [one.detach().clone() for one in parts.parameters]
    steps.make()
    assert all(torch.equal(one, other) for one, other in zip(before, parts.parameters, strict=True))
    assert any(one.grad is not None and one.grad.abs().sum() > 0 for one in parts.parameters)
    assert len(parts.optimizer.state) == len(before)


def test_each_round_steps_on_another_batch(tmp_path):
    parts = build_parts(tiny(tmp_path), Group())
    steps = bench._Steps(parts)
    sizes, batches = [], []
    for _ in range(8):
        sizes.append(steps._samples)
        batches.append(torch.cat([micro["inputs"] for micro, _ in steps._micros]))
        steps.advance()
    assert sizes == [8] * 7 + [4]
    assert [len(one) for one in batches] == sizes
    assert not torch.equal(batches[0], batches[1])


def test_a_round_takes_what_the_loader_has_ready_before_its_block(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_BLOCK_SECONDS", 0.0)
    parts = build_parts(tiny(tmp_path), Group())
    steps, order = bench._Steps(parts), []
    before = steps._micros
    bench._round({way: partial(order.append, way) for way in (_LOADER, _HERE, _TRAINING)}, steps)
    assert order == [*[_LOADER] * bench._AHEAD, _LOADER, _HERE, _TRAINING]
    assert steps._micros is not before


@pytest.mark.parametrize("protocol", ["fixed", "paper"])
def test_without_a_validation_part_all_of_train_is_read(tmp_path, protocol):
    parts = build_parts(tiny(tmp_path, f"protocol={protocol}"), Group())
    assert len(parts.training) == parts.plan.num_samples == 76


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "'nope': no such recipe"),
        (["control-recall", "train.batch_siz=8"], "did you mean 'batch_size'"),
        (["control-recall", "--rounds", "0"], "0 is not in the range x>=1"),
    ],
)
def test_a_wrong_target_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(["bench", "input", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.ci
def test_measured_with_a_loader_process_that_ends(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_BLOCK_SECONDS", 0.0)
    torch.manual_seed(0)
    found = measure_input(tiny(tmp_path), rounds=1)
    assert [one["way"] for one in found["rates"]] == WAYS
    assert all(one["wall_ms"] > 0 and one["over_training"] > 0 for one in found["rates"])
    assert found["rates"][-1]["over_training"] == 1.0
    assert found["arrays"]["inputs"].startswith("int64 3x")
    length = int(found["arrays"]["inputs"].partition("x")[2])
    assert found["mbytes"] == pytest.approx(8 * (length * (8 + 1) + 8) / 1e6)
    assert found["batch_size"] == 8
    assert found["start_seconds"] > 0
    assert multiprocessing.active_children() == []


@pytest.mark.ci
def test_table_and_json(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "_BLOCK_SECONDS", 0.0)
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path))
    assert main(["bench", "input", *TINY, "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["what"], found["run"], found["rounds"]) == ("input", "identity-seed0", 1)
    assert [one["way"] for one in found["rates"]] == WAYS
    assert main(["bench", "input", *TINY, "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[: len(way)] for line, way in zip(lines[1:4], WAYS, strict=True)] == WAYS
    assert lines[4].startswith("identity-seed0: batches of 8, 0.00")
    assert lines[5].startswith(f"{found['parameters']:,} parameters; ")
