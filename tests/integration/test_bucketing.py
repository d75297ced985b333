"""Length bucketing changes which samples share a batch and how much padding is computed, and
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import cli
from result_file import read_result
from safetensors.numpy import load_file
from small_run import digests, only_run, run_here

from subquad.cli.main import main
from subquad.data import ArraySplit, DataSpec, Split, TestKey, sample_lengths
from subquad.engine.evaluate import evaluate
from subquad.engine.feed import training_batches
from subquad.engine.group import Group
from subquad.engine.parts import build_dataset, build_parts
from subquad.errors import ConfigError
from subquad.experiment import Run, load_study
from subquad.experiment.folder import start
from subquad.plan import ShardWindow, TokenBudget
from subquad.record.metrics import read_records

VOWELS = """
name: small
dataset: {name: uea, params: {problem: JapaneseVowels}}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 16, num_heads: 2, ffn_dim: 32, dropout: 0.1}}
mixer: {name: agf, params: {order: 3, ortho_weight: 0.0}}
train: {epochs: 2, batch_size: 16, lr: 1e-3, log_every: 1, bucket_batches: 4}
tracking: {uri: off}
"""
PLAIN = ("train.precision=fp64", "backbone.params.dropout=0.0")
Make = Callable[..., Run]


@pytest.fixture
def vowels(tmp_path: Path) -> Path:
    path = tmp_path / "vowels.yaml"
    path.write_text(VOWELS)
    return path


@pytest.fixture
def ticket(vowels: Path, tmp_path: Path) -> Make:
    def make(*overrides: str) -> Run:
        (found,) = start(load_study(str(vowels), overrides), tmp_path).runs
        return found

    return make


def losses(run: Path) -> np.ndarray:
    return np.array(
        [record.metrics["loss"] for record in read_records(run) if record.kind == "train"]
    )


def test_a_run_has_as_many_steps_and_other_batches(ticket: Make):
    plain, on = ticket("train.bucket_batches=0"), ticket()
    assert (run_here(plain), run_here(on)) == ("finished", "finished")
    assert len(losses(plain.folder)) == len(losses(on.folder)) == 28
    assert (losses(plain.folder) != losses(on.folder)).any()
    assert (plain.folder / "plan.json").read_bytes() == (on.folder / "plan.json").read_bytes()


@pytest.mark.parametrize("stop_at", [5, 14, 15])
def test_stopping_and_going_on_changes_nothing(ticket: Make, stop_at: int):
    whole, halted = ticket(), ticket()
    run_here(whole)
    calls = iter(range(1, 10**6))
    assert run_here(halted, lambda: 15 if next(calls) == stop_at else 0) == "stopped"
    run_here(halted)
    assert digests(halted.folder) == digests(whole.folder)
    assert np.array_equal(losses(halted.folder), losses(whole.folder))
    assert (read_result(halted.folder) or {})["test"] == (read_result(whole.folder) or {})["test"]


def by_tokens(split: ArraySplit, settings):
    return TokenBudget(len(split), settings, np.asarray(sample_lengths(split)), 300)


def by_shards(split: ArraySplit, settings):
    return ShardWindow(len(split), settings, (100, len(split) - 100), 32)


@pytest.mark.parametrize("plan", [by_tokens, by_shards])
def test_a_plan_that_the_split_chose_goes_on_exactly(
    plan, ticket: Make, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ArraySplit, "plan", plan)
    whole, halted = ticket(), ticket()
    run_here(whole)
    calls = iter(range(1, 10**6))
    assert run_here(halted, lambda: 15 if next(calls) == 9 else 0) == "stopped"
    run_here(halted)
    assert digests(halted.folder) == digests(whole.folder)
    assert np.array_equal(losses(halted.folder), losses(whole.folder))
    result = read_result(whole.folder) or {}
    assert result["epochs"] == 2
    evaluated = [record.epoch for record in read_records(whole.folder) if record.kind == "eval"]
    assert evaluated == [1, 2]


def test_a_plan_that_trims_needs_bucket_batches(ticket: Make, monkeypatch: pytest.MonkeyPatch):
    def unasked(split: ArraySplit, settings):
        return by_tokens(split, replace(settings, bucket_batches=1))

    monkeypatch.setattr(ArraySplit, "plan", unasked)
    with pytest.raises(
        ConfigError, match=r"train\.bucket_batches: got 0, and this data set's plan trims batches"
    ):
        run_here(ticket("train.bucket_batches=0"))


def test_micro_batches_give_the_same_curve(ticket: Make):
    whole, cut = ticket(*PLAIN), ticket(*PLAIN, "train.micro_batch=5")
    run_here(whole)
    run_here(cut)
    np.testing.assert_allclose(losses(cut.folder), losses(whole.folder), rtol=0, atol=1e-10)


@pytest.mark.extended
def test_loader_processes_do_not_change_the_order(ticket: Make):
    here, there = ticket(), ticket("train.loader_workers=2")
    run_here(here)
    run_here(there)
    assert np.array_equal(losses(there.folder), losses(here.folder))


def test_two_workers_follow_the_same_curve_and_keep_the_same_predictions(
    vowels: Path, tmp_path: Path
):
    runs = []
    for workers in (1, 2):
        root = tmp_path / f"w{workers}"
        cli(
            [
                "train",
                str(vowels),
                "--local",
                "--root",
                str(root),
                f"resources.workers={workers}",
                *PLAIN,
            ],
            tmp_path,
        )
        runs.append(only_run(root))
    np.testing.assert_allclose(losses(runs[1]), losses(runs[0]), rtol=0, atol=1e-6)
    first, second = (load_file(run / "predictions.safetensors") for run in runs)
    assert np.array_equal(first["label"], second["label"])
    assert (first["predicted"] == second["predicted"]).mean() > 0.99


def test_a_kill_leaves_no_trace(vowels: Path, tmp_path: Path):
    cli(["train", str(vowels), "--local", "--root", str(tmp_path / "whole")], tmp_path)
    cli(
        ["train", str(vowels), "--local", "--root", str(tmp_path / "cut")],
        tmp_path,
        fault="kill@step:19",
        check=-9,
    )
    killed = only_run(tmp_path / "cut")
    cli(["resume", str(killed), "--local"], tmp_path)
    assert digests(killed) == digests(only_run(tmp_path / "whole"))


def run_of(path: Path, *overrides: str) -> Run:
    return replace(load_study(str(path), overrides).runs[0], data_root=path.parent)


def opened(run: Run) -> tuple[DataSpec, Split]:
    dataset = build_dataset(run)
    return dataset.describe(), dataset.split("test", TestKey("x", "test of the engine"))


def test_evaluation_gives_the_same_numbers_in_the_splits_order(vowels: Path, tmp_path: Path):
    on, plain = run_of(vowels, *PLAIN), run_of(vowels, *PLAIN, "train.bucket_batches=0")
    _, split = opened(on)
    found = []
    for run in (on, plain):
        found.append(evaluate(build_parts(run, Group()), split, per_sample=True))
    (got, rows), (expected, wanted) = found
    assert got == pytest.approx(expected, rel=1e-12)
    assert rows.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(rows[name], values, rtol=0, atol=1e-12)
    assert len(set(np.asarray(split.lengths()).tolist())) > 5


def test_batches_are_as_long_as_their_longest_sample(vowels: Path, tmp_path: Path):
    run = run_of(vowels)
    parts = build_parts(run, Group())
    keeps = [
        micro["keep"] for micros, _ in training_batches(parts, 0, workers=0) for micro, *_ in micros
    ]
    assert all(keep.shape[1] == int(keep.sum(1).max()) for keep in keeps)
    computed, padded = sum(keep.numel() for keep in keeps), sum(len(keep) for keep in keeps) * 26
    real = int(sum(keep.sum() for keep in keeps))
    assert real <= computed < real + 0.3 * (padded - real)


REFUSED = [
    (
        ("mixer.params.ortho_weight=0.1",),
        "got 4, trims padding, which the mixer's extra loss may count (ortho); use "
        "0, or a weight of 0",
    ),
    (
        ("dataset={name: recall, params: {}}",),
        "got 4, has no effect with this data set, whose sequences are equally",
    ),
    (
        ("backbone.params.head=flatten",),
        "got 4, trims padding, and backbone 'encoder' depends on padding: head flatten",
    ),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_a_refusal_is_one_line_and_nothing_is_made(
    settings, message, vowels, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["train", vowels.name, "--local", *settings]) == 2
    errors = capsys.readouterr().err
    assert f"train.bucket_batches: {message}" in errors
    assert errors.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [vowels.name]
