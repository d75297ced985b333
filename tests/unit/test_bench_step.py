"""Plumbing of `subquad bench step`: what is timed, and that it is what a run does. No time is
judged.
"""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from subquad.cli.main import main
from subquad.engine.group import Group
from subquad.engine.parts import build_parts
from subquad.experiment import Run, load_study
from subquad_tools.bench import step
from subquad_tools.bench.step import Steps, feed, measure_steps

TINY = (
    "controls",
    "match=null",
    "matrix.dataset=[recall]",
    "backbone.params.ffn_dim=128",
    "dataset.params.train_size=60",
    "dataset.params.validation_size=16",
    "train.batch_size=8",
    "train.micro_batch=3",
    "matrix.mixer=[identity]",
)


def tiny(root: Path, *overrides: str) -> Run:
    target, *rest = TINY
    return replace(load_study(target, (*rest, *overrides)).runs[0], data_root=root)


def test_batches_are_those_of_a_run_and_never_end(tmp_path):
    parts = build_parts(tiny(tmp_path), Group())
    assert len(parts.training) == 60
    with_it = [
        len(micro["labels"])
        for micros, _ in itertools.islice(feed(parts, 0), 16)
        for micro, *_ in micros
    ]
    epoch = [3, 3, 2] * 7 + [3, 1]
    assert with_it == epoch * 2


def test_steps_are_real_and_leave_the_weights_as_they_are(tmp_path):
    parts = build_parts(tiny(tmp_path), Group())
    steps = Steps(parts)
    before = [parameter.detach().clone() for parameter in parts.parameters]
    steps.make()
    assert all(
        torch.equal(former, parameter)
        for former, parameter in zip(before, parts.parameters, strict=True)
    )
    assert any(
        parameter.grad is not None and parameter.grad.abs().sum() > 0
        for parameter in parts.parameters
    )
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
    assert [len(batch) for batch in batches] == sizes
    assert not torch.equal(batches[0], batches[1])


@pytest.mark.parametrize("protocol", ["fixed", "paper"])
def test_without_a_validation_part_all_of_train_is_read(tmp_path, protocol):
    parts = build_parts(tiny(tmp_path, f"protocol={protocol}"), Group())
    assert len(parts.training) == parts.plan.num_samples == 76


def test_phases_of_a_step_come_in_order(tmp_path):
    phases = []
    Steps(build_parts(tiny(tmp_path), Group()), phases.append).make()
    assert phases == ["", *["forward", "backward"] * 3, "optimizer", "", ""]


def test_siblings_by_seed_are_measured_once():
    runs = load_study("quickstart", ["matrix.dataset=[JapaneseVowels]"]).runs
    assert len(runs) == 6
    assert [run.label for run in step._different(runs)] == [
        run.label for run in runs if run.label.endswith("seed0")
    ]


def test_runs_are_compared_with_the_first_on_the_same_data(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "_BLOCK_SECONDS", 0.0)
    study = load_study(
        TINY[0], (*TINY[1:-1], "matrix.mixer=[identity, softmax]", "matrix.seed=[0]")
    )
    runs = [replace(run, data_root=tmp_path) for run in study.runs]
    found = measure_steps(runs, rounds=1)
    first, second = found["steps"]
    assert (first["mixer"], second["mixer"], first["ratio"]) == ("identity", "softmax", 1.0)
    assert second["ratio"] == pytest.approx(second["whole_ms"] / first["whole_ms"])
    for timing in found["steps"]:
        parts = [timing[f"{phase}_ms"] for phase in ("forward", "backward", "optimizer")]
        assert min(parts) > 0
        assert sum(parts) <= timing["whole_ms"]
        assert 0 < timing["samples_per_second"] < timing["tokens_per_second"]
        assert timing["peak_mib"] > 0
        assert timing["gflop"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "'nope': no such recipe"),
        (["quickstart", "train.batch_siz=8"], "did you mean 'batch_size'"),
        (["quickstart", "--rounds", "0"], "0 is not in the range x>=1"),
        (["quickstart", "--device", "tpu"], "--device tpu: give cpu, cuda or cuda:1"),
    ],
)
def test_a_wrong_target_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(["bench", "step", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.ci
def test_tables_and_json(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(step, "_BLOCK_SECONDS", 0.0)
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path))
    assert main(["bench", "step", *TINY, "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["what"], found["rounds"]) == ("step", 1)
    assert [step["run"] for step in found["steps"]] == ["recall-identity-seed0"]
    assert main(["bench", "step", *TINY, "--rounds", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("recall-identity-seed0")
    assert lines[2].startswith("cpu: CPU time, one thread, medians over 1 rounds")
