"""What a run does when something breaks: non-finite steps, signals, damaged checkpoints, a run
in use.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from dataclasses import replace

import pytest
import torch
from command import Command, cli
from filelock import FileLock
from result_file import read_result
from safetensors.torch import load_file, save
from small_run import digests, only_run, run_here, wait_for_steps

from subquad.cli.main import main
from subquad.engine import checkpoint, faults
from subquad.engine.optim import LossScaler
from subquad.errors import CheckpointError, RunError
from subquad.record.files import write_json
from subquad.record.metrics import read_records


@pytest.fixture
def poison(monkeypatch):
    """Make the loss of given steps NaN, in this process."""

    def arm(*steps: int) -> None:
        faults._PASSED.clear()
        armed = [("nan", "loss", step, "") for step in steps]
        monkeypatch.setattr(faults, "_faults", lambda: armed)

    return arm


def weights_at(run, step):
    return load_file(run / "checkpoints" / f"step-{step:08d}" / "model.safetensors")


def test_a_non_finite_step_never_reaches_the_weights(ticket, poison):
    run = ticket("train.checkpoint_every_steps=1", "train.keep_checkpoints=100", "train.epochs=1")
    poison(5)
    assert run_here(run) == "finished"
    before, after, later = (weights_at(run.folder, step) for step in (4, 5, 6))
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert any(not torch.equal(after[name], later[name]) for name in after)
    assert read_result(run.folder)["skipped_steps"] == 1
    (event,) = [record for record in read_records(run.folder) if record.kind == "event"]
    assert event.text.startswith("step 5 skipped on all workers: loss nan")


def test_three_in_a_row_stop_the_run_with_the_cause(ticket, poison):
    run = ticket()
    poison(20, 21, 22)
    assert run_here(run) == "failed"
    result = read_result(run.folder)
    assert result["status"] == "failed"
    assert "3 non-finite steps in a row, the last at step 22 (loss nan" in result["reason"]
    assert "lower train.lr" in result["reason"]


def test_a_failed_run_is_tried_again_from_its_checkpoint(ticket, poison):
    run, whole = ticket(), ticket()
    poison(20, 21, 22)
    run_here(run)
    poison()
    assert run_here(run) == "failed", "not within the launch that saw it fail"
    assert run_here(replace(run, launch="another")) == "finished"
    run_here(whole)
    assert digests(run.folder) == digests(whole.folder)


def test_fp16_backs_off_without_calling_it_a_failure(ticket, monkeypatch):
    monkeypatch.setattr(LossScaler, "of", lambda train: LossScaler(True, 2.0**40))
    run = ticket("train.precision=fp16")
    assert run_here(run) == "finished"
    assert read_result(run.folder)["skipped_steps"] == 0
    events = [record.text for record in read_records(run.folder) if record.kind == "event"]
    assert len(events) > 3
    assert events[0] == "step 1 skipped: fp16 overflow, the loss scale is halved"


def test_a_non_finite_loss_is_a_failure_in_fp16_too(ticket, poison):
    run = ticket("train.precision=fp16")
    poison(5, 6, 7)
    assert run_here(run) == "failed"


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_checkpoint_is_passed_over_and_told(ticket, damage):
    run, whole = ticket(), ticket()
    run_here(whole)
    calls = iter(range(1, 10**6))
    run_here(run, lambda: 15 if next(calls) == 36 else 0)  # six are evaluations'
    path = run.folder / "checkpoints" / "step-00000030" / "model.safetensors"
    data = bytearray(path.read_bytes())
    if damage == "truncate":
        path.write_bytes(data[:-7])
    elif damage == "flip":
        data[-3] ^= 16
        path.write_bytes(data)
    else:
        path.unlink()
    assert run_here(run) == "finished"
    assert digests(run.folder) == digests(whole.folder)
    events = [record.text for record in read_records(run.folder) if record.kind == "event"]
    assert any(
        "passed over a bad checkpoint" in text and "step-00000030" in text for text in events
    )


def best_is_not_last(ticket, *settings):
    """A finished run without its result, as a kill would leave it, whose best step is 13 and
    whose last one is 26.
    """
    run = ticket("train.epochs=2", "train.checkpoint_every_steps=5", "train.seed=3", *settings)
    assert run_here(run) == "finished"
    result = read_result(run.folder)
    assert (result["test"]["checkpoint"], result["test"]["step"], result["steps"]) == (
        "best",
        13,
        26,
    )
    (run.folder / "result.json").unlink()
    return run, result


def openings(run):
    return (run.folder / "test-openings.jsonl").read_text().splitlines()


def test_the_test_split_stays_closed_where_the_best_weights_are_damaged(ticket):
    run, _ = best_is_not_last(ticket)
    path = run.folder / "checkpoints" / "step-00000013" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        CheckpointError,
        match=r"all \d checkpoints are damaged: .*step-00000013/model.safetensors has",
    ):
        run_here(run)
    assert len(openings(run)) == 1
    assert read_result(run.folder) is None


def test_weights_that_are_damaged_while_the_run_goes_on_are_not_tested_either(ticket, monkeypatch):
    run, _ = best_is_not_last(ticket)
    whole = checkpoint.newest_good

    def damage_later(root, warn):
        found = whole(root, warn)
        (root / "step-00000013" / "model.safetensors").unlink()
        return found

    monkeypatch.setattr(checkpoint, "newest_good", damage_later)
    with pytest.raises(CheckpointError, match=r"step-00000013/model.safetensors is missing"):
        run_here(run)
    assert len(openings(run)) == 1


def test_an_earlier_good_checkpoint_trains_the_best_one_again(ticket):
    run, result = best_is_not_last(ticket, "train.keep_checkpoints=10")
    (run.folder / "checkpoints" / "step-00000013" / "manifest.json").write_text("[" * 100_000)
    assert run_here(run) == "finished"
    assert read_result(run.folder)["test"] == result["test"]
    events = [record.text for record in read_records(run.folder) if "passed over" in record.text]
    assert [
        step
        for step in (26, 25, 20, 15, 13, 10)
        if any(f"step-{step:08d}" in text for text in events)
    ] == [13]
    assert len(events) == 5, "each one whose best is the damaged one"


def test_the_optimisers_file_of_the_best_checkpoint_is_not_needed_to_test_it(ticket):
    run, result = best_is_not_last(ticket)
    (run.folder / "checkpoints" / "step-00000013" / "optimizer.safetensors").unlink()
    assert run_here(run) == "finished"
    assert read_result(run.folder)["test"] == result["test"]
    assert events(run.folder) == [
        "started again by itself at step 26 (attempt 2): a process was killed after step 26, "
        "without a message"
    ]


def events(run):
    return [record.text for record in read_records(run) if record.kind == "event"]


def resigned(folder, name, change):
    """Change the tensors of a checkpoint's file, and write a manifest that fits."""
    manifest = json.loads((folder / "manifest.json").read_text())
    content = save(change(dict(load_file(folder / name))))
    (folder / name).write_bytes(content)
    manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_json(folder / "manifest.json", manifest)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model", lambda key, tensor: {key: tensor.half()}, r"another model: .* differ"),
        (
            "optimizer",
            lambda key, tensor: {key: tensor.double()},
            r"step 8 cannot be used: \S+/\S+ is float64.*, must be float32",
        ),
        (
            "optimizer",
            lambda key, tensor: {},
            r"step 8 cannot be used: \S+/\S+ is missing, must be float32",
        ),
        (
            "rng",
            lambda key, tensor: {key: tensor[:-1]},
            r"step 8 cannot be used: 0/torch is uint8 5055, must be uint8 5056",
        ),
    ],
)
def test_a_checkpoint_that_was_signed_anew_is_refused_by_name(ticket, name, change, message):
    run, calls = ticket(), iter(range(1, 100))
    run_here(run, lambda: 15 if next(calls) == 8 else 0)
    folder = run.folder / "checkpoints" / "step-00000008"

    def changed(tensors):
        key, tensor = tensors.popitem()
        return tensors | change(key, tensor)

    resigned(folder, f"{name}.safetensors", changed)
    with pytest.raises(CheckpointError, match=message):
        run_here(run)


def test_damaged_records_are_told_and_starts_are_counted_on(ticket):
    run, whole = ticket(), ticket()
    run_here(whole)
    for stop in (10, 26):
        calls = iter(range(1, 100))
        run_here(run, lambda calls=calls, stop=stop: 15 if next(calls) == stop else 0)
    records = (run.folder / "metrics-2.jsonl").read_text().splitlines(keepends=True)
    records[3] = records[3].replace('"step": 13', '"step": 14')
    (run.folder / "metrics-2.jsonl").write_text("".join(records))
    with pytest.raises(RunError, match=r"metrics-2\.jsonl:4: damaged: no record"):
        list(read_records(run.folder))
    (run.folder / "attempts.jsonl").write_bytes(b"\xff\n{}\n")
    (run.folder / "environment.json").write_text("{")
    assert run_here(run) == "finished"
    result = read_result(run.folder)
    assert (result["test"], result["attempts"]) == (read_result(whole.folder)["test"], 3)
    assert events(run.folder)[-3:] == [
        "resumed at step 30 (attempt 3)",
        "environment.json was damaged, and is written again",
        "metrics.jsonl was damaged: 1 of 35 records of earlier attempts are lost",
    ]


def test_what_lies_in_the_way_is_named(ticket):
    run = ticket()
    (run.folder / "plan.json").mkdir()
    with pytest.raises(RunError, match=r"/plan\.json: Is a directory$"):
        run_here(run)


def test_another_experiment_cannot_take_over_a_checkpoint(ticket):
    run = ticket()
    calls = iter(range(1, 10**6))
    run_here(run, lambda: 15 if next(calls) == 3 else 0)
    other = ticket("train.lr=0.5")
    with pytest.raises(
        CheckpointError, match=r"belongs to another experiment; they differ in: train\.lr"
    ):
        run_here(replace(other, place=run.folder))


def test_a_run_in_use_is_refused(small, tmp_path):
    stopped = cli(
        ["train", str(small), "--local", "--root", str(tmp_path)],
        tmp_path,
        fault="kill@step:3",
        check=-signal.SIGKILL,
    )
    assert stopped.stdout.startswith("1 run to do in runs/small/")
    run = only_run(tmp_path)
    with FileLock(run / "lock"):
        done = cli(["resume", str(run), "--local"], tmp_path, check=2)
    assert "is in use by process" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "code", "workers"),
    [
        (signal.SIGINT, 130, 1),
        (signal.SIGTERM, 143, 2),
        pytest.param(signal.SIGINT, 130, 2, marks=pytest.mark.extended),
        pytest.param(signal.SIGTERM, 143, 1, marks=pytest.mark.extended),
    ],
)
def test_a_signal_saves_and_says_how_to_go_on(small, tmp_path, number, code, workers):
    settings = ["train.epochs=5000", f"resources.workers={workers}", "train.eval_every_epochs=null"]
    process = Command(
        ["train", str(small), "--local", "--root", str(tmp_path), *settings], tmp_path
    )
    wait_for_steps(tmp_path, 3, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code, errors
    run = only_run(tmp_path)
    assert f"stopped by {number.name} after saving step" in errors
    assert re.search(r"; go on with: subquad resume \S+ --local\n", errors)
    assert "Traceback" not in errors
    newest = sorted((run / "checkpoints").iterdir())[-1]
    assert int(newest.name.removeprefix("step-")) > 3
    assert read_result(run) is None


def test_a_second_signal_stops_at_once_with_its_own_code(small, tmp_path, monkeypatch, capsys):
    def twice(name):
        for _ in range(2 * (name == "step")):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(faults, "point", twice)
    assert main(["train", str(small), "--local", "--root", str(tmp_path)]) == 143
    assert capsys.readouterr().err.strip() == ""
    assert not list(only_run(tmp_path).glob("checkpoints/*"))


def test_nan_on_one_rank_is_skipped_on_all(small, tmp_path):
    # The marker makes the fault fire in one of the two ranks only.
    fault = f"nan@loss:5:{tmp_path / 'fired'}"
    cli(
        ["train", str(small), "--local", "--root", str(tmp_path), "resources.workers=2"],
        tmp_path,
        fault=fault,
    )
    result = read_result(only_run(tmp_path))
    assert result["status"] == "finished"
    assert result["skipped_steps"] == 1


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("raise", "RuntimeError: injected fault at step"),
        ("kill", "worker 0 was killed by SIGKILL, as where memory has run out"),
    ],
)
def test_a_rank_that_ends_ends_the_others_and_the_run_goes_on_by_itself(
    small, tmp_path, fault, cause
):
    """The cause is told, not what the other rank saw of it."""
    arguments = ["train", str(small), "--local", "--root", str(tmp_path), "resources.workers=2"]
    done = cli(arguments, tmp_path, fault=f"{fault}@step:9:{tmp_path / 'fired'}")
    assert done.stderr == ""
    pattern = cause.replace("0", "[01]")
    assert re.search(
        rf"started again by itself at step \d+ \(attempt 2\): .*{pattern}", done.stdout
    )
    assert re.search(pattern, events(only_run(tmp_path))[0])
    result = read_result(only_run(tmp_path))
    assert result["status"] == "finished"
    assert result["attempts"] == 2


def test_a_rank_that_always_raises_ends_its_run_with_the_cause_and_no_other_run(small, tmp_path):
    settings = [
        "matrix.train.lr=[0.001, 0.002]",
        "resources.workers=2",
        "resources.max_failures=1",
        "train.epochs=1",
    ]
    # Two ranks in each of two attempts.
    fault = ",".join(f"raise@step:4:{tmp_path / str(number)}" for number in range(4))
    arguments = ["train", str(small), "--local", "--jobs", "1", "--root", str(tmp_path), *settings]
    done = cli(arguments, tmp_path, fault=fault, check=1)
    assert "Traceback" not in done.stderr + done.stdout
    cells = sorted((only_run(tmp_path) / "cells").iterdir())
    results = [read_result(cell) for cell in cells]
    assert [result["status"] for result in results] == ["failed", "finished"]
    assert "2 attempts in a row failed after step 0" in results[0]["reason"]
    assert "injected fault at step" in results[0]["reason"]
