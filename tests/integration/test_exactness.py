"""Exact resume, and results that do not depend on how a batch is cut."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from command import cli
from result_file import read_result
from safetensors.torch import load_file
from small_run import digests, only_run, run_here, stop_ranks_at, stopped_at

from subquad.data import NO_LABEL, ArraySplit, TestKey
from subquad.engine import faults, loop
from subquad.engine.group import Group
from subquad.engine.loop import Signals
from subquad.engine.run import train_run
from subquad.engine.step import UNREAD
from subquad.errors import DataError
from subquad.experiment import load_study
from subquad.experiment.folder import start
from subquad.record.files import read_json
from subquad.record.metrics import read_records
from subquad.trained.model import Trained

# fp64 without dropout: what is left between two ways of cutting a batch is rounding.
PLAIN = ("train.precision=fp64", "backbone.params.dropout=0.0")


def losses(run):
    return np.array(
        [record.metrics["loss"] for record in read_records(run) if record.kind == "train"]
    )


def test_a_run_from_folder_to_result(ticket):
    run = ticket()
    assert run_here(run) == "finished"
    result = read_result(run.folder)
    assert result["status"] == "finished"
    assert result["steps"] == 39
    assert result["test"]["samples"] == 60
    assert result["test"]["checkpoint"] == "best"
    assert 0 <= result["test"]["metrics"]["accuracy"] <= 1
    assert result["parameters"] > 1000
    assert result["flops_per_step"] > 0
    assert 0 < 29 * result["seconds_per_step"] / 2 < result["seconds"]
    assert result["peak_memory_bytes"] > 0
    assert read_json(run.folder / "best.json") == result["best"]
    assert (run.folder / "predictions.safetensors").exists()
    assert len(list(read_records(run.folder))) == 39 + 3


@pytest.mark.parametrize(("interval_s", "measured"), [(0.0, 26), (1e9, 0)])
def test_system_metrics_are_measured_at_most_once_an_interval(
    ticket, monkeypatch, interval_s, measured
):
    monkeypatch.setattr("subquad.engine.loop.SYSTEM_SECONDS", interval_s)
    run, counts = ticket("train.epochs=2"), itertools.count(1)
    train_run(run, Group(), Signals(system=lambda: {"count": float(next(counts))}))
    recorded = [
        record.metrics["count"] for record in read_records(run.folder) if record.kind == "system"
    ]
    assert recorded == list(range(1, measured + 1))
    assert next(counts) == measured + 1


def test_the_test_split_opens_once_and_is_in_the_ledgers(ticket, tmp_path):
    run = ticket()
    run_here(run)
    run_here(run)
    for ledger in (run.folder / "test-openings.jsonl", tmp_path / "runs" / "test-openings.jsonl"):
        (line,) = map(json.loads, ledger.read_text().splitlines())
        assert line["protocol"] == "honest"
        assert line["reason"].startswith("final evaluation of the best checkpoint")
        assert line["experiment"] == run.digest


def test_the_paper_protocol_is_labelled_everywhere(ticket):
    run = ticket("protocol=paper")
    run_here(run)
    result = read_result(run.folder)
    assert result["best"]["split"] == "test"
    assert result["test"]["metrics"]["accuracy"] == result["best"]["metrics"]["accuracy"]
    assert "best test accuracy over epochs" in result["protocol_label"]
    assert {record.split for record in read_records(run.folder) if record.kind == "eval"} == {
        "test"
    }
    reasons = [
        json.loads(line)["reason"]
        for line in (run.folder / "test-openings.jsonl").read_text().splitlines()
    ]
    assert "published convention" in reasons[0]


def test_fixed_epochs_train_on_everything_and_test_the_last_weights(ticket):
    run = ticket("protocol=fixed")
    run_here(run)
    result = read_result(run.folder)
    assert result["best"] is None
    assert result["test"]["checkpoint"] == "last"
    assert result["steps"] == 3 * -(-result["sizes"]["trainval"] // 16)


# Calls 14 to 16, 30 to 32 and 46 to 48 are made by evaluations, the last four by that of TEST.
@pytest.mark.parametrize("stop_at", [1, 7, 13, 14, 16, 31, 38, 45, 46, 48, 49, 52])
def test_stopping_and_going_on_changes_nothing(ticket, stop_at):
    whole, halted = ticket(), ticket()
    run_here(whole)
    calls = iter(range(1, 10**6))
    assert run_here(halted, lambda: 15 if next(calls) == stop_at else 0) == "stopped"
    assert read_result(halted.folder) is None
    assert run_here(halted) == "finished"
    assert digests(halted.folder) == digests(whole.folder)
    assert np.array_equal(losses(halted.folder), losses(whole.folder))
    mine, theirs = read_result(halted.folder), read_result(whole.folder)
    assert mine["test"] == theirs["test"]
    assert mine["best"] == theirs["best"]
    assert mine["attempts"] == 2


@pytest.mark.parametrize("precision", ["fp64", "bf16", "fp16"])
@pytest.mark.parametrize("optimizer", ["radam", "sgd"])
def test_other_precisions_and_optimizers_go_on_exactly(ticket, precision, optimizer):
    overrides = (
        f"train.precision={precision}",
        f"train.optimizer={optimizer}",
        "train.schedule=one-cycle",
    )
    whole, halted = ticket(*overrides), ticket(*overrides)
    run_here(whole)
    calls = iter(range(1, 10**6))
    run_here(halted, lambda: 15 if next(calls) == 20 else 0)
    run_here(halted)
    assert digests(halted.folder) == digests(whole.folder)
    assert np.isfinite(losses(whole.folder)).all()


@pytest.mark.parametrize("micro", [1, 5, 16])
def test_accumulation_gives_the_same_curve(ticket, micro):
    whole, cut = ticket(*PLAIN), ticket(*PLAIN, f"train.micro_batch={micro}")
    run_here(whole)
    run_here(cut)
    np.testing.assert_allclose(losses(cut.folder), losses(whole.folder), rtol=0, atol=1e-10)


def test_what_decides_no_numbers_may_change_when_a_run_resumes(ticket):
    whole, halted = ticket(*PLAIN), ticket(*PLAIN)
    run_here(whole)
    assert run_here(halted, stopped_at(17)) == "stopped"
    settings = (
        "train.micro_batch=5",
        "train.eval_batch_size=7",
        "train.max_skipped_steps=9",
        "resources.max_failures=1",
    )
    other = replace(ticket(*PLAIN, *settings), place=halted.folder)
    assert run_here(other) == "finished"
    np.testing.assert_allclose(losses(halted.folder), losses(whole.folder), rtol=0, atol=1e-10)
    mine, theirs = (
        read_result(run.folder)["test"]["metrics"]["accuracy"] for run in (halted, whole)
    )
    assert mine == theirs


def test_loader_processes_do_not_change_the_order(ticket):
    here, there = ticket(), ticket("train.loader_workers=2")
    run_here(here)
    run_here(there)
    assert np.array_equal(losses(there.folder), losses(here.folder))
    assert read_result(there.folder)["test"] == read_result(here.folder)["test"]


@pytest.mark.extended
def test_two_workers_may_have_loader_processes(small, tmp_path):
    settings = ["resources.workers=2", "train.loader_workers=1", "train.epochs=1"]
    cli(["train", str(small), "--local", "--root", str(tmp_path), *settings], tmp_path)
    assert read_result(only_run(tmp_path))["status"] == "finished"


@pytest.mark.parametrize("setting", ["train.micro_batch=3", "train.batch_size=17"])
def test_two_workers_follow_the_same_curve(ranks, ticket, setting):
    alone, together = ticket(*PLAIN, setting), ticket(*PLAIN, setting, "resources.workers=2")
    run_here(alone)
    assert {process.code for process in ranks.train(together, 2)} == {0}
    curve = losses(together.folder)
    assert len(curve) == len(losses(alone.folder))
    np.testing.assert_allclose(curve, losses(alone.folder), rtol=0, atol=1e-6)


def test_fsdp2_trains_saves_and_goes_on_at_one_rank(small, tmp_path):
    roots, settings = (
        [tmp_path / name for name in ("plain", "sharded")],
        [*PLAIN, "train.ema_decay=0.9"],
    )
    cli(["train", str(small), "--local", "--root", str(roots[0]), *settings], tmp_path)
    sharded = ["resources.workers=2", "resources.strategy=fsdp2"]
    plan = load_study(str(small), [*settings, *sharded])
    (ticket,) = start(plan, roots[1]).runs
    stop_ranks_at(23, ticket.as_values(), world_size=2)  # two of the calls are an evaluation's
    run = only_run(roots[1])
    assert [path.name for path in sorted((run / "checkpoints").iterdir())][-1] == "step-00000021"
    text = (run / "experiment.yaml").read_text()
    (run / "experiment.yaml").write_text(
        text.replace("workers: 2", "workers: 1").replace("fsdp2", "ddp")
    )
    cli(["resume", str(run), "--local"], tmp_path)
    assert read_result(run)["attempts"] == 2
    np.testing.assert_allclose(losses(run), losses(only_run(roots[0])), rtol=0, atol=1e-6)
    assert read_result(run)["best"]["metrics"] == pytest.approx(
        read_result(only_run(roots[0]))["best"]["metrics"]
    )


@pytest.mark.parametrize(
    "mixer", [pytest.param("agf", marks=pytest.mark.extended), "./normed.py:Normed"]
)
def test_three_ranks_go_on_bit_for_bit(ranks, ticket, tmp_path, monkeypatch, mixer):
    """Three ranks, where the order of additions shows, and a mixer with buffers that differ over
    ranks.
    """
    monkeypatch.chdir(tmp_path)
    Path("normed.py").write_text(NORMED)
    settings = (f"mixer={mixer}", "resources.workers=3", "train.epochs=2")
    whole, killed = ticket(*settings), ticket(*settings)
    for run, fault in ((whole, ""), (killed, "kill@step:20"), (killed, "")):
        ended = ranks.train(run, 3, fault)
        assert {process.code for process in ended} == {-9 if fault else 0}, ended[0].trace
    assert read_result(killed.folder)["attempts"] == 2
    assert digests(killed.folder) == digests(whole.folder)
    assert read_result(killed.folder)["test"] == read_result(whole.folder)["test"]


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_first_step_that_is_skipped_on_the_device_leaves_nothing_behind(
    ticket, monkeypatch, optimizer
):
    """torch's fused sgd would go on from uninitialised memory."""
    found = []
    for unread in (0, 1):
        monkeypatch.setitem(UNREAD, "cpu", unread)
        run = ticket(f"train.optimizer={optimizer}", "train.epochs=1")
        monkeypatch.setattr(faults, "_faults", lambda: [("nan", "loss", 1, "")])
        faults._PASSED.clear()
        assert run_here(run) == "finished"
        assert read_result(run.folder)["skipped_steps"] == 1
        found.append(losses(run.folder))
    np.testing.assert_allclose(found[1][1:], found[0][1:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("protocol", ["honest", "fixed"])
def test_the_average_is_what_is_tested(ticket, protocol):
    run = ticket(f"protocol={protocol}", "train.ema_decay=0.9", "train.epochs=1", "train.lr=0.02")
    assert run_here(run) == "finished"
    test = read_result(run.folder)["test"]
    trained = Trained.of(run.folder, test["checkpoint"])
    split = trained.dataset.split("test", TestKey("recall", "a test"))
    assert trained.scores(split) == pytest.approx(test["metrics"], rel=1e-6)


NORMED = """
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig


class Normed(TokenMixer):
    Config = MixerConfig
    facts = Facts()

    def __init__(self, config, site):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(site.dim)
        self.value = torch.nn.Linear(site.dim, site.dim)
        self.unused = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x, *, keep=None, carry=None):
        return self.value(self.norm(x.transpose(1, 2)).transpose(1, 2)).cumsum(1)
"""


def test_a_stop_on_a_saved_step_does_not_save_it_again(ticket, monkeypatch):
    run = ticket()
    steps = []
    monkeypatch.setattr(loop, "save", lambda *arguments: steps.append(arguments[1].step))
    calls = iter(range(1, 10**6))
    assert run_here(run, lambda: 15 if next(calls) == 13 else 0) == "stopped"
    assert steps == [13]


def test_a_kill_between_checkpoint_and_pointer_is_mended(small, tmp_path):
    cli(
        ["train", str(small), "--local", "--root", str(tmp_path)],
        tmp_path,
        fault="kill@save.done:3",
        check=-9,
    )
    run = only_run(tmp_path)
    assert read_json(run / "last.json")["step"] == 26
    cli(["resume", str(run), "--local"], tmp_path)
    result = read_result(run)
    assert read_json(run / "last.json") == result["last"]
    assert read_json(run / "best.json") == result["best"]
    assert result["last"]["step"] == 39


def kill_and_resume(small, root, faults):
    """Kill a run at each fault in turn, go on, and return its folder."""
    first, *rest = [*faults, ""]
    cli(["train", str(small), "--local", "--root", str(root)], root.parent, fault=first, check=None)
    run = only_run(root)
    for fault in rest:
        cli(["resume", str(run), "--local"], root.parent, fault=fault, check=None)
    return run


def test_kills_leave_no_trace(small, tmp_path):
    cli(["train", str(small), "--local", "--root", str(tmp_path / "whole")], tmp_path)
    faults = ["kill@step:5", "kill@save.half:3", "kill@step:17", "kill@save.manifest:2"]
    killed = kill_and_resume(small, tmp_path / "killed", faults)
    assert digests(killed) == digests(only_run(tmp_path / "whole"))
    assert read_result(killed)["attempts"] == 5


@pytest.mark.extended
@pytest.mark.parametrize("number", range(20))
def test_twenty_kills_at_random_places(small, tmp_path, number):
    generator = random.Random(number)
    cli(["train", str(small), "--local", "--root", str(tmp_path / "whole")], tmp_path)
    points = [f"kill@step:{generator.randint(1, 39)}", f"kill@save.half:{generator.randint(1, 15)}"]
    points += [
        f"kill@save.{name}:{generator.randint(1, 3)}" for name in ("manifest", "done", "state.json")
    ]
    killed = kill_and_resume(small, tmp_path / "killed", [points[number % 5]])
    assert read_result(killed)["attempts"] == 2
    assert digests(killed) == digests(only_run(tmp_path / "whole"))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_reading_a_step_while_the_next_is_made_changes_nothing(ticket, monkeypatch, optimizer):
    """Nor does a step that is not finite, which is skipped before anybody knows of it."""
    found = []
    for unread in (0, 1):
        faults._PASSED.clear()
        monkeypatch.setitem(UNREAD, "cpu", unread)
        monkeypatch.setattr(faults, "_faults", lambda: [("nan", "loss", 6, "")])
        run = ticket(f"train.optimizer={optimizer}", "train.log_every=9")
        assert run_here(run) == "finished"
        (event,) = [record for record in read_records(run.folder) if record.kind == "event"]
        assert event.text.startswith("step 6 skipped on all workers: loss nan")
        logged = {
            record.step: record.metrics
            for record in read_records(run.folder)
            if record.kind == "train"
        }
        found.append((digests(run.folder), logged, read_result(run.folder)["test"]["metrics"]))
    assert found[0][0] == found[1][0]
    assert found[0][2] == found[1][2]
    for step, metrics in found[0][1].items():
        assert metrics == pytest.approx(found[1][1][step], rel=1e-6)


def test_going_on_is_exact_where_a_step_is_read_while_the_next_is_made(ticket, monkeypatch):
    monkeypatch.setitem(UNREAD, "cpu", 1)
    settings = ("train.log_every=1000", "train.schedule=cosine")
    whole, halted = ticket(*settings), ticket(*settings)
    run_here(whole)
    calls = iter(range(1, 10**6))
    assert run_here(halted, lambda: 15 if next(calls) == 17 else 0) == "stopped"
    assert run_here(halted) == "finished"
    assert digests(halted.folder) == digests(whole.folder)


def tensors_at(run, step, file):
    return load_file(run.folder / "checkpoints" / f"step-{step:08d}" / f"{file}.safetensors")


def test_the_average_of_weights_is_kept_and_evaluated(ticket, monkeypatch):
    faults._PASSED.clear()
    monkeypatch.setattr(faults, "_faults", lambda: [("nan", "loss", 6, "")])
    run = ticket(
        "train.ema_decay=0.9",
        "train.checkpoint_every_steps=1",
        "train.keep_checkpoints=100",
        "train.epochs=1",
    )
    run_here(run)
    for step in range(2, 14):
        before, after, training = (
            tensors_at(run, step - 1, "model"),
            tensors_at(run, step, "model"),
            tensors_at(run, step, "optimizer"),
        )
        for name, average in before.items():
            expected = average if step == 6 else average.lerp(training[f"/{name}"], 0.1)
            assert torch.allclose(after[name], expected, rtol=1e-5, atol=1e-7), (step, name)
    assert any(not torch.equal(after[name], training[f"/{name}"]) for name in after)


def test_going_on_with_an_average_changes_nothing(ticket):
    settings = ("train.ema_decay=0.95", "protocol=paper")
    whole, halted = ticket(*settings), ticket(*settings)
    run_here(whole)
    calls = iter(range(1, 10**6))
    run_here(halted, lambda: 15 if next(calls) == 20 else 0)
    assert run_here(halted) == "finished"
    assert digests(halted.folder) == digests(whole.folder)
    mine, theirs = read_result(halted.folder), read_result(whole.folder)
    assert mine["test"] == theirs["test"]
    assert mine["test"]["metrics"]["loss"] == mine["best"]["metrics"]["loss"], (
        "what is kept is what was evaluated"
    )


def unreadable(monkeypatch, *which):
    """Make samples of the recall control's splits unreadable."""
    fetch = ArraySplit.fetch

    def with_bad(self, indices, **where):
        batch = fetch(self, indices, **where)
        bad = np.isin(indices, which)
        batch["labels"] = np.where(bad, NO_LABEL, batch["labels"])
        return {**batch, "bad": bad}

    monkeypatch.setattr(ArraySplit, "fetch", with_bad)


def test_samples_that_cannot_be_read_are_left_out_and_named(ticket, monkeypatch):
    unreadable(monkeypatch, 7)
    run = ticket("train.max_bad=0.05", "train.epochs=1")
    assert run_here(run) == "finished"
    (event,) = [record for record in read_records(run.folder) if record.kind == "event"]
    assert event.text == "cannot be read, left out: sample 7"
    metrics = read_result(run.folder)["test"]["metrics"]
    assert metrics["bad_samples"] == 1
    assert metrics["accuracy"] * 59 == pytest.approx(round(metrics["accuracy"] * 59)), (
        "of 60 samples one is left out"
    )


def test_too_many_of_them_stop_the_run(ticket, monkeypatch):
    unreadable(monkeypatch, 7, 9)
    with pytest.raises(
        DataError,
        match=r"of 203 samples cannot be read, the last sample [79].*train.max_bad \(0.005\)",
    ):
        run_here(ticket("train.max_bad=0.005"))
