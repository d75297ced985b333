"""`subquad tune` through Ray Tune: several trials at once, their processes killed, signals."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Command, cli
from result_file import read_result
from small_run import SMALL
from waiting import until

from subquad.record.files import read_json
from subquad.record.layout import runs_below
from subquad.record.metrics import read_records


@pytest.fixture
def two_cpus() -> Iterator[None]:
    """What this process and its children may use."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def study(tmp_path: Path, nothing_left) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "space.yaml").write_text("dims: {train.lr: {loguniform: [1e-4, 1e-2]}}")
    return tmp_path


def tune(root: Path, *more: str) -> list[str]:
    return [
        "tune",
        "small.yaml",
        "--space",
        "./space.yaml",
        "final.seeds=1",
        "--root",
        str(root),
        *more,
    ]


def only_search(root: Path) -> Path:
    (folder,) = (root / "runs" / "small-search").iterdir()
    return folder


def trials(search: Path) -> dict[str, dict]:
    """What each trial is and came to, without what a clock has a part in."""
    found = {}
    for path in sorted(search.glob("trials/*/*/trial.json")):
        evals = [
            (record.step, dict(record.metrics))
            for record in read_records(path.parent)
            if record.kind == "eval"
        ]
        found[path.parent.name] = {
            "trial": read_json(path),
            "evaluations": evals,
            **status(path.parent),
        }
    return found


def status(run: Path) -> dict:
    result = read_result(run) or {}
    return {name: result.get(name) for name in ("status", "best", "test")}


def processes(search: Path) -> list[int]:
    lines = [
        line
        for path in search.glob("trials/*/*/attempts.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [json.loads(line)["pid"] for line in lines]


def test_a_search_with_a_killed_worker_has_the_local_numbers(study):
    """Random points and no pruner, so it makes no difference how many trials run at once."""
    cli(tune(study / "local", "--budget", "4-trials", "--local"), study)
    done = cli(
        tune(study / "ray", "--budget", "4-trials"), study, fault=f"kill@step:9:{study / 'killed'}"
    )
    local, through_ray = only_search(study / "local"), only_search(study / "ray")
    assert (study / "killed").exists()
    assert len(processes(through_ray)) == 5
    assert trials(through_ray) == trials(local)
    assert [status(run) for run in runs_below(through_ray / "final")] == [
        status(run) for run in runs_below(local / "final")
    ]
    assert done.stderr == ""
    assert sorted(path.name for path in through_ray.iterdir()) == sorted(
        path.name for path in local.iterdir()
    )
    assert "Configuration for experiment" not in done.stdout


@pytest.mark.extended
def test_a_signal_saves_all_trials_and_they_go_on(study):
    """Two trials at once, where there are two CPUs; both save, and both go on from there."""
    more = ["train.epochs=50000", "resources.cpus_per_worker=0.5"]
    with Command(tune(study, "--budget", "2-trials", *more), study) as process:
        begun = "runs/small-search/*/trials/small/*/metrics.jsonl"
        until(lambda: len(list(study.glob(begun))) >= 2, process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=240)
    assert process.returncode == 143, errors
    assert errors.startswith(
        "subquad: stopped by SIGTERM; go on with: subquad resume runs/small-search/"
    )
    assert len(errors.splitlines()) == 1
    for trial in only_search(study).glob("trials/small/*"):
        assert list(trial.glob("checkpoints/step-*"))
        assert read_result(trial) is None


@pytest.mark.extended
@pytest.mark.parametrize("cpus", [1.0, 0.5])
def test_trials_with_several_workers_find_room_and_have_the_local_numbers(study, two_cpus, cpus):
    """With half a CPU for each worker two Ray Train runs are there at once, and each waits for
    its workers.
    """
    more = ["--budget", "3-trials", "resources.workers=2", f"resources.cpus_per_worker={cpus}"]
    cli(tune(study / "local", *more, "--local"), study)
    done = cli(tune(study / "ray", *more), study, seconds=1800)
    local, through_ray = only_search(study / "local"), only_search(study / "ray")
    assert trials(through_ray) == trials(local)
    assert [trial["status"] for trial in trials(local).values()] == ["finished"] * 3
    assert len(processes(through_ray)) == 3
    assert done.stderr == ""
