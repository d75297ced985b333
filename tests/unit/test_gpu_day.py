"""The script that spends a lent GPU: what it starts, and what it keeps between slices. Without a
GPU.
"""

from __future__ import annotations

import argparse
import json
import time

import pytest
from benchmark import benchmark

from subquad.experiment import load_study


@pytest.fixture(scope="module")
def gpu_day():
    return benchmark("gpu_day")


def given(size, *overrides):
    return argparse.Namespace(
        size=size, device="cpu" if size == "smoke" else "cuda", overrides=list(overrides)
    )


@pytest.mark.parametrize("size", ["full", "small", "smoke"])
def test_its_runs_are_experiments_of_one_seed(gpu_day, tmp_path, size):
    steps = [
        step
        for group in gpu_day.groups(tmp_path, given(size))
        for step in group
        if step.name.startswith("train")
    ]
    assert [step.name for step in steps] == [
        f"train-{t}-{m}" for t in gpu_day.TASKS for m in gpu_day.MIXERS
    ]
    for step in steps:
        words = list(step.command[step.command.index("train") + 1 :])
        recipe, overrides = words[0], words[words.index("--root") + 2 :]
        (run,) = load_study(recipe, overrides).runs
        assert run.experiment.resources.gpus_per_worker == (size != "smoke")
        assert run.experiment.dataset.name == f"subquad:lra-{step.name.split('-')[1]}"
        assert run.experiment.mixer.name == f"subquad:{step.name.split('-')[2]}"


def test_a_run_that_has_begun_goes_on(gpu_day, tmp_path):
    folder = tmp_path / "train" / "image" / "cur" / "runs" / "lra-agf" / "20260101-000000-ab"
    folder.mkdir(parents=True)
    command = gpu_day.training(tmp_path, "image", "cur", given("full"))
    assert command[-3:] == ("resume", str(folder), "--local")


def test_files_of_pictures_are_given_to_their_task_alone(gpu_day, tmp_path):
    path = "matrix.dataset.image.params.path=data/cifar"
    for task in gpu_day.TASKS:
        command = gpu_day.training(
            tmp_path, task, "agf", given("full", path, "train.precision=bf16")
        )
        assert (path in command) == (task == "image")
        assert "train.precision=bf16" in command


def test_what_is_done_is_kept_and_what_was_stopped_is_done_again(gpu_day, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_day, "SAVING", 0.3)
    monkeypatch.setattr(gpu_day, "LEAST", 0.0)
    codes = {"good": "", "bad": "1/0", "long": "import time; time.sleep(60)"}
    steps = {name: gpu_day.Step(name, ("-S", "-c", code)) for name, code in codes.items()}
    steps["slow"] = gpu_day.Step("slow", steps["long"].command, seconds=0.1)
    gpu_day.Day(tmp_path, time.monotonic() + 1.0).do(list(steps.values()))
    kept = json.loads((tmp_path / "day.json").read_text())
    found = {name: step["status"] for name, step in kept.items()}
    assert found == {"good": "done", "bad": "failed", "long": "stopped", "slow": "failed"}
    assert "ZeroDivisionError" in (tmp_path / "bad.log").read_text()
    again = gpu_day.Day(tmp_path, time.monotonic() + 1.0)
    again.do(list(steps.values()))
    assert {name: step["slices"] for name, step in again.done.items()} == {
        "good": 1,
        "bad": 1,
        "long": 2,
        "slow": 1,
    }
