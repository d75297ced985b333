"""Runs of a study side by side: each has, bit for bit, the numbers that it has when one goes after
the other, also where workers or the driver are killed, or a signal stops them.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Command, cli
from result_file import read_result
from small_run import SMALL, digests, only_run
from waiting import until

from subquad.record.metrics import read_records
from subquad.record.names import ATTEMPTS

STUDY = (
    SMALL
    + """
matrix:
  train.seed: [0, 1, 2, 3]
"""
)
WAYS = {"local": ("--local",), "ray": ()}
RAY_IS_SLOW = pytest.param("ray", marks=pytest.mark.extended)


@pytest.fixture(autouse=True)
def _two_cpus() -> Iterator[None]:
    """What this process and its children may use."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Model, optimiser and generators of each run, one after the other in one process."""
    folder = tmp_path_factory.mktemp("one")
    study = one_after_the_other(folder)
    assert {process for process, _ in starts(study)} == {process_of_first(study)}
    return states(study)


LONGER = ("train.epochs=40", "matrix.train.seed=[0,1,2]")


@pytest.fixture(scope="module")
def expected_of_longer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The same of three runs that last longer."""
    return states(one_after_the_other(tmp_path_factory.mktemp("longer"), *LONGER))


def one_after_the_other(folder: Path, *more: str) -> Path:
    write(folder)
    cli(["train", "study.yaml", *more, "--local", "--jobs", "1"], folder)
    return only_run(folder)


def write(folder: Path) -> None:
    (folder / "study.yaml").write_text(STUDY)


def cells(study: Path) -> list[Path]:
    return sorted((study / "cells").iterdir())


def states(study: Path) -> dict[str, dict[str, str]]:
    return {cell.name: digests(cell) for cell in cells(study)}


def starts(study: Path) -> list[tuple[int, float]]:
    """Process and time of each start."""
    lines = [
        json.loads(line)
        for cell in cells(study)
        if (cell / ATTEMPTS).exists()
        for line in (cell / ATTEMPTS).read_text().splitlines()
    ]
    return [(line["pid"], line["time"]) for line in lines]


def process_of_first(study: Path) -> int:
    return starts(study)[0][0]


@pytest.mark.parametrize("way", WAYS)
def test_two_at_a_time_have_the_numbers_of_one_after_the_other(
    tmp_path, expected, way, nothing_left
):
    write(tmp_path)
    done = cli(["train", "study.yaml", *WAYS[way]], tmp_path)
    study = only_run(tmp_path)
    assert states(study) == expected
    assert len(starts(study)) == 4
    assert len({process for process, _ in starts(study)}) == 2
    ends = [max(record.time for record in read_records(cell)) for cell in cells(study)]
    began = sorted(time for _, time in starts(study))
    assert began[1] < min(ends)
    assert done.stderr == ""


@pytest.mark.parametrize("way", ["local", RAY_IS_SLOW])
def test_with_two_workers_each_they_share_one_group(tmp_path, expected, way, nothing_left):
    """One fits at a time, and the processes stay."""
    write(tmp_path)
    more = ["resources.workers=2", "matrix.train.seed=[0,1]"]
    cli(["train", "study.yaml", *more, *WAYS[way]], tmp_path)
    study = only_run(tmp_path)
    assert [read_result(cell)["status"] for cell in cells(study)] == ["finished"] * 2
    assert len({process for process, _ in starts(study)}) == 1


POINTS = {
    "before the first save": "step:3",
    "after a plain save": "step:9",
    "after an evaluation": "step:15",
}


@pytest.mark.parametrize("way", ["local", RAY_IS_SLOW])
@pytest.mark.parametrize(
    "moment",
    ["twice in a row", *(pytest.param(moment, marks=pytest.mark.extended) for moment in POINTS)],
)
def test_a_killed_worker_changes_nothing(tmp_path, expected, way, moment, nothing_left):
    write(tmp_path)
    points = [POINTS[moment]] if moment in POINTS else ["step:9", "step:8"]
    marks = [tmp_path / f"killed-{number}" for number in range(len(points))]
    pairs = zip(points, marks, strict=True)
    fault = ",".join(f"kill@{point}:{mark}" for point, mark in pairs)
    command = ["train", "study.yaml", "train.checkpoint_every_steps=5", *WAYS[way]]
    done = cli(command, tmp_path, fault=fault)
    assert all(mark.exists() for mark in marks)
    study = only_run(tmp_path)
    assert states(study) == expected
    assert len(starts(study)) == 4 + len(points)
    assert done.stderr == ""


@pytest.mark.parametrize("way", ["local", RAY_IS_SLOW])
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name
)
def test_after_a_signal_all_that_ran_goes_on(
    tmp_path, expected_of_longer, way, number, nothing_left
):
    """Two runs are under way; both save, unless the driver is killed, and both go on. Workers of
    Ray may reach the end of their runs before they notice that the driver is gone.
    """
    write(tmp_path)
    process = Command(["train", "study.yaml", *LONGER, *WAYS[way]], tmp_path)

    def are_under_way() -> bool:
        below = tmp_path.glob("runs/small/*/cells/*")
        return sum(steps(cell) > 20 for cell in below) >= 2

    until(are_under_way, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=240)
    study = only_run(tmp_path)
    if number == signal.SIGKILL:
        assert not nothing_left.after(seconds=90)
    else:
        assert process.returncode == 128 + number, errors
        assert errors.startswith(f"subquad: stopped by {number.name} after saving step")
        assert errors.count("\n") == 1
        begun = [cell for cell in cells(study) if (cell / ATTEMPTS).exists()]
        assert len(begun) == 2
        assert all(list(cell.glob("checkpoints/step-*")) for cell in begun)
    results = [read_result(cell) or {} for cell in cells(study)]
    unfinished = [result for result in results if result.get("status") != "finished"]
    cli(["resume", str(study), "--local"], tmp_path)
    assert states(study) == expected_of_longer
    assert len(starts(study)) == 2 + len(unfinished)


def steps(run: Path) -> int:
    return max((record.step for record in read_records(run)), default=0)
