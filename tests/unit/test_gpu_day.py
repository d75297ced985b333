"""The script that spends some minutes of a GPU: what it starts, and what it says it left out.
Without a GPU.
"""

from __future__ import annotations

import json
import time

import pytest
from benchmark import benchmark

from subquad.cli.main import main
from subquad_tools.bench import kernels, mixers


@pytest.fixture(scope="module")
def gpu_day():
    return benchmark("gpu_day")


@pytest.mark.parametrize("cpu", [False, True])
def test_its_steps_are_commands_that_exist(gpu_day, cpu, monkeypatch, capsys):
    asked = []

    def stop(chosen, settings, left_out):
        asked.append(settings)
        raise KeyError

    monkeypatch.setattr(mixers, "time_mixers", stop)
    monkeypatch.setattr(kernels, "time_kernels", stop)
    steps = list(gpu_day.steps(cpu))
    names = [step.name for step in steps]
    assert len(names) == len({*names})
    assert names[0] == "tests-operations"
    benches = [step for step in steps if not step.name.startswith("tests")]
    for step in benches:
        assert main(list(step.command[2:])) == 1
    assert len(asked) == len(benches)
    assert {settings.device for settings in asked} == {"cpu" if cpu else "cuda"}
    assert {f"table-{name}" for name in gpu_day.TABLES} <= {*names}
    assert {file for step in steps for file in step.command if file.startswith("tests/gpu")} == {
        f"tests/gpu/test_{name.removeprefix('tests-')}.py"
        for name in names
        if name.startswith("tests-")
    }


def test_what_was_found_is_written_after_each_step_and_what_was_left_out_is_said(
    gpu_day, tmp_path, monkeypatch
):
    monkeypatch.setattr(gpu_day, "LEAST", 0.0)
    day = gpu_day.Day(tmp_path, time.monotonic() + 60)
    codes = {
        "good": "print('a line'); print('{\"what\": 1}')",
        "bad": "1/0",
        "slow": "import time; time.sleep(60)",
        "tests-some": "print('FAILED tests/a.py::b - no'); print('1 failed, 7 passed in 2 s')",
    }
    for name, code in codes.items():
        allowed = 1 if name == "slow" else 30
        day.do(gpu_day.Step(name, ("-S", "-c", code), allowed), {})
        steps = json.loads((tmp_path / "day.json").read_text())["steps"]
        assert steps[-1]["name"] == name
    day.end = time.monotonic() - 1
    day.do(gpu_day.Step("late", ("-c", ""), 30), {})
    good, _, _, some, _ = day.found["steps"]
    assert good["found"] == {"what": 1}
    assert (some["tests"], some["failed"]) == ({"failed": 1, "passed": 7}, ["tests/a.py::b"])
    assert day.left_out == [
        "bad: failed: exit 1",
        "slow: left out: not done after 1 s",
        "late: left out: no time",
    ]
    assert "ZeroDivisionError" in (tmp_path / "day.log").read_text()


@pytest.mark.extended
def test_a_rehearsal_without_a_gpu(gpu_day, tmp_path):
    assert gpu_day.main(["--cpu", "--out", str(tmp_path), "--seconds", "300"]) == 0
    steps = json.loads((tmp_path / "day.json").read_text())["steps"]
    assert {step["status"] for step in steps} == {"done"}
