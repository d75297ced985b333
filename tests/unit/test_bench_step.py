"""Plumbing of `subquad bench step`: what is timed, and that it is what a run does. No time is judged."""

import itertools
import json
import multiprocessing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from subquad.bench import input as bench
from subquad.bench import step
from subquad.bench.input import _HERE, _LOADER, _TRAINING, _rate, measure_input
from subquad.bench.step import Steps, feed, measure_steps
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
    with_it = [len(micro["labels"]) for micros, _ in itertools.islice(feed(parts, 0), 16) for micro, *_ in micros]
    epoch = [3, 3, 2] * 7 + [3, 1]
    assert with_it == epoch * 2


def test_steps_are_real_and_leave_the_weights_as_they_are(tmp_path):
    parts = build_parts(tiny(tmp_path), Group())
    steps = Steps(parts)
    before = [one.detach().clone() for one in parts.parameters]
    steps.make()
    assert all(torch.equal(one, other) for one, other in zip(before, parts.parameters, strict=True))
    assert any(one.grad is not None and one.grad.abs().sum() > 0 for one in parts.parameters)
    assert len(parts.optimizer.state) == len(before)


def test_each_round_steps_on_another_batch(tmp_path):
    parts = build_parts(tiny(tmp_path), Group())
    steps = Steps(parts)
    sizes, batches = [], []
    for _ in range(8):
        sizes.append(steps.samples)
        batches.append(torch.cat([micro["inputs"] for micro, *_ in steps.micros]))
        steps.advance()
    assert sizes == [8] * 7 + [4]
    assert [len(one) for one in batches] == sizes
    assert not torch.equal(batches[0], batches[1])


def test_a_round_takes_what_the_loader_has_ready_before_its_block(monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_BLOCK_SECONDS", 0.0)
    parts = build_parts(tiny(tmp_path), Group())
    steps, order = Steps(parts), []
    before = steps.micros
    bench._round({way: partial(order.append, way) for way in (_LOADER, _HERE, _TRAINING)}, steps)
    assert order == [*[_LOADER] * bench._AHEAD, _LOADER, _HERE, _TRAINING]
    assert steps.micros is not before


@pytest.mark.parametrize("protocol", ["fixed", "paper"])
def test_without_a_validation_part_all_of_train_is_read(tmp_path, protocol):
    parts = build_parts(tiny(tmp_path, f"protocol={protocol}"), Group())
    assert len(parts.training) == parts.plan.num_samples == 76


def test_phases_of_a_step_come_in_order(tmp_path):
    seen = []
    Steps(build_parts(tiny(tmp_path), Group()), seen.append).make()
    assert seen == ["", *["forward", "backward"] * 3, "optimizer", "", ""]


def test_siblings_by_seed_are_measured_once():
    runs = load_study("control-recall", ()).runs
    assert len(runs) == 6
    assert [run.label for run in step._different(runs)] == [run.label for run in runs if run.label.endswith("seed0")]


def test_runs_are_compared_with_the_first_on_the_same_data(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "_BLOCK_SECONDS", 0.0)
    study = load_study(TINY[0], (*TINY[1:-1], "matrix.mixer=[identity, softmax]", "matrix.seed=[0]"))
    runs = [replace(run, data_root=tmp_path) for run in study.runs]
    found = measure_steps(runs, rounds=1)
    first, second = found["steps"]
    assert (first["mixer"], second["mixer"], first["ratio"]) == ("identity", "softmax", 1.0)
    assert second["ratio"] == pytest.approx(second["whole_ms"] / first["whole_ms"])
    for one in found["steps"]:
        parts = [one[f"{phase}_ms"] for phase in ("forward", "backward", "optimizer")]
        assert min(parts) > 0
        assert sum(parts) <= one["whole_ms"]
        assert 0 < one["samples_per_second"] < one["tokens_per_second"]
        assert one["peak_mib"] > 0
        assert one["gflop"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "'nope': no such recipe"),
        (["control-recall", "train.batch_siz=8"], "did you mean 'batch_size'"),
        (["control-recall", "--rounds", "0"], "0 is not in the range x>=1"),
        (["control-recall", "--device", "tpu"], "--device tpu: give cpu, cuda or cuda:1"),
    ],
)
def test_a_wrong_target_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(["bench", "step", *arguments]) == 2
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
def test_tables_and_json(monkeypatch, tmp_path, capsys):
    for module in (bench, step):
        monkeypatch.setattr(module, "_BLOCK_SECONDS", 0.0)
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path))
    assert main(["bench", "step", *TINY, "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["what"], found["rounds"], found["input"]) == ("step", 1, None)
    assert [one["run"] for one in found["steps"]] == ["identity-seed0"]
    assert main(["bench", "step", *TINY, "--rounds", "1", "--input"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("identity-seed0")
    assert lines[2].startswith("cpu: CPU time, one thread, medians over 1 rounds")
    assert [line[: len(way)] for line, way in zip(lines[5:8], WAYS, strict=True)] == WAYS
    assert lines[8].startswith("identity-seed0: batches of 8, 0.00")
