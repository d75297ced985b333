"""A cluster of several machines, with a token: training on two of them, a driver without data, lost
machines, refusals.

Each machine but the head has a folder of its own where the driver has its runs, as machines apart
have.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from cluster import APART, Cluster, apart
from command import Command, cli
from object_store import KEYS, Bucket
from result_file import read_result
from small_run import digests, only_run
from waiting import until
from wheels import wheel

from subquad.record.metrics import read_records
from subquad.record.names import ATTEMPTS, LAST, OWNER

ROOT = Path(f"/tmp/subquad-driver-{os.getpid()}")
"""Of the driver alone, and of this test process: another one may run on the same machine."""


@pytest.fixture(scope="module")
def two(s3_server) -> Iterator[Cluster]:
    """A head that trains nothing, and two machines with one CPU each, which reach the server."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": s3_server[0]}.items():
            patch.setenv(name, value)
        with apart(ROOT, 2) as made:
            yield made


def shared(folder: Path) -> str:
    """Storage of the machines, below the folder of a test."""
    return f"resources.storage={folder / 'shared'}"


def kept(run: Path, folder: Path) -> Path:
    """Where storage has a run."""
    return folder / "shared" / run.relative_to(run.parents[2])


def attempts(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / ATTEMPTS).read_text().splitlines()]


def steps_of(run: Path) -> list[tuple[str, int]]:
    return [
        (record.kind, record.step)
        for record in read_records(run)
        if record.kind in ("train", "eval")
    ]


def name_of(process: psutil.Process) -> str:
    """ "" where it has ended."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def on(made: Cluster, arguments: list[str], cwd: Path, **more):
    return cli([*arguments, "--address", made.address], cwd, **made.environment, **more)


@pytest.fixture(params=["folder", "s3"])
def storage(request, tmp_path) -> str | Bucket:
    return request.getfixturevalue("bucket") if request.param == "s3" else ""


def test_two_machines_give_the_local_numbers_though_a_worker_is_killed(
    two, small, tmp_path, storage
):
    cli(
        ["train", str(small), "--local", "--root", str(tmp_path / "local"), "resources.workers=2"],
        tmp_path,
    )
    fault = f"kill@step:9:{tmp_path / 'once'}"
    root = ROOT / tmp_path.name
    setting = f"resources.storage={storage.storage}" if storage else shared(tmp_path)
    done = on(
        two,
        ["train", str(small), "--root", str(root), "resources.workers=2", setting],
        tmp_path,
        fault=fault,
    )
    run = only_run(root)
    assert not (run / "checkpoints").exists()
    if storage:
        for name in storage.names():
            (tmp_path / "shared" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "shared" / name).write_bytes(storage.read(name))
    assert digests(kept(run, tmp_path)) == digests(only_run(tmp_path / "local"))
    assert read_result(run)["test"] == read_result(only_run(tmp_path / "local"))["test"]
    assert read_result(run)["attempts"] == 2
    for path in {*run.glob("*.json*")} - {run / OWNER}:
        assert path.read_bytes() == (kept(run, tmp_path) / path.name).read_bytes()
    assert "started again by itself" in done.stdout
    assert "test accuracy" in done.stdout
    assert done.stderr == ""
    cli(["verify", str(run)], tmp_path)


def test_a_lost_machine_shrinks_the_job_and_a_new_one_lets_it_grow(two, small, tmp_path):
    workers = ["resources.workers=1..2", "resources.strategy=fsdp2", shared(tmp_path)]
    steps = [
        "train.epochs=null",
        "train.steps=1000000",
        "train.eval_every_epochs=null",
        "train.eval_every_steps=50",
    ]
    root = ROOT / tmp_path.name
    command = ["train", str(small), "--root", str(root), "--address", two.address, *workers, *steps]
    with Command(command, tmp_path, **two.environment) as driver:

        def newest() -> dict:
            assert driver.poll() is None, driver.communicate()
            found = [
                attempt
                for run in root.glob("runs/small/*")
                if (run / ATTEMPTS).exists()
                for attempt in attempts(run)
            ]
            return found[-1] if found else {}

        until(lambda: newest().get("world_size") == 2)
        run = only_run(root)
        until((run / LAST).exists)
        two.kill(two.nodes[-1])
        until(lambda: newest().get("world_size") == 1)
        assert newest()["from_step"] >= 50
        until(lambda: max(record.step for record in read_records(run)) > newest()["from_step"])
        two.start("--num-cpus=1", private=[ROOT])
        until(lambda: newest().get("world_size") == 2)
        driver.send_signal(signal.SIGTERM)
        _, errors = driver.communicate(60)
    assert driver.returncode == 143, errors
    lost, stopped = errors.splitlines()
    assert lost.startswith("machine ")
    assert " was lost; training goes on" in lost
    assert "stopped by SIGTERM after saving step" in stopped
    assert f"subquad resume {run} --address {two.address}" in stopped


@pytest.mark.extended
def test_a_study_side_by_side_goes_on_without_a_lost_machine(two, small, tmp_path):
    """Each machine has a run when one is lost; its run goes on where the other one ends."""
    small.write_text(small.read_text() + "matrix: {train.seed: [0, 1, 2]}\n")
    steps = ["train.epochs=150", "train.eval_every_epochs=10"]
    cli(["train", str(small), "--local", "--root", str(tmp_path / "local"), *steps], tmp_path)
    root = ROOT / tmp_path.name
    where = ["--root", str(root), "--address", two.address, shared(tmp_path)]
    command = ["train", str(small), *where, *steps]
    with Command(command, tmp_path, **two.environment) as driver:
        until(lambda: len(list(root.glob(f"runs/small/*/cells/*/{LAST}"))) == 2, seconds=180)
        two.kill(two.nodes[-1])
        _, errors = driver.communicate(300)
    two.start("--num-cpus=1", private=[ROOT])
    assert driver.returncode == 0, errors
    assert errors.count("\n") == 1
    assert " was lost; training goes on" in errors
    local, there = (
        {cell.name: digests(cell) for cell in (only_run(place) / "cells").iterdir()}
        for place in (tmp_path / "local", tmp_path / "shared")
    )
    assert there == local
    starts = [len(attempts(cell)) for cell in (only_run(root) / "cells").iterdir()]
    assert sorted(starts) == [1, 1, 2]


@pytest.mark.parametrize(
    "moments",
    [(LAST,), pytest.param((ATTEMPTS, LAST), marks=pytest.mark.extended)],
    ids=["after a save", "before and after the first save"],
)
def test_a_run_goes_on_when_the_process_that_workers_ask_dies(two, small, tmp_path, moments):
    root, settings = (
        ROOT / tmp_path.name,
        ["resources.workers=2", "train.epochs=60", "train.eval_every_epochs=20"],
    )
    cli(["train", str(small), "--local", "--root", str(tmp_path / "local"), *settings], tmp_path)
    settings.append(shared(tmp_path))
    command = ["train", str(small), "--root", str(root), "--address", two.address, *settings]

    def holding() -> list[psutil.Process]:
        below = psutil.Process().children(recursive=True)
        return [child for child in below if name_of(child) == "ray::_Head"]

    with Command(command, tmp_path, **two.environment) as driver:
        for name in moments:
            until(lambda name=name: list(root.glob(f"runs/small/*/{name}")) and holding())
            (asked,) = holding()
            asked.kill()
            until(lambda asked=asked: holding() not in ([], [asked]))
        _, errors = driver.communicate(300)
    assert driver.returncode == 0, errors
    assert errors == ""
    run = only_run(root)
    assert digests(kept(run, tmp_path)) == digests(only_run(tmp_path / "local"))
    assert steps_of(run) == steps_of(only_run(tmp_path / "local"))


def test_a_second_job_tells_what_it_waits_for_and_then_trains(two, small, tmp_path):
    def command(name: str, *settings: str) -> list[str]:
        root = str(ROOT / tmp_path.name / name)
        where = ["--root", root, "--address", two.address, "resources.workers=2", shared(tmp_path)]
        return ["train", str(small), *where, *settings]

    with Command(command("first", "train.epochs=2000"), tmp_path, **two.environment) as first:
        until(lambda: list((ROOT / tmp_path.name).glob(f"first/runs/small/*/{ATTEMPTS}")))
        with Command(command("second"), tmp_path, **two.environment) as second:
            until(lambda: "waits" in second.printed(2))
            first.send_signal(signal.SIGINT)
            _, errors = second.communicate(300)
        first.communicate(100)
    assert second.returncode == 0, errors
    assert re.fullmatch(
        r"waits for room: 0 CPUs and 0 GPUs are free; other jobs: of driver \d+\n", errors
    )
    assert only_run(ROOT / tmp_path.name / "second")


def test_a_search_has_its_trials_on_all_machines(two, small, tmp_path):
    root, settings = (
        ROOT / tmp_path.name,
        ["--space", "optimizer", "--budget", "3-trials", "final.seeds=1"],
    )
    # not over at once
    settings += [
        "train.epochs=60",
        "train.eval_every_epochs=20",
        "--pruner",
        "asha",
        "--json",
        shared(tmp_path),
    ]
    command = ["tune", str(small), *settings, "--root", str(root)]
    summary = json.loads(on(two, command, tmp_path).stdout)
    (candidate,) = summary["candidates"]
    assert sum(candidate["trials"].values()) == 3
    trials = list(root.glob("runs/small-search/*/trials/small/*"))
    assert len(trials) == 3
    assert all(read_result(trial)["status"] in ("finished", "pruned") for trial in trials)
    assert len({attempts(trial)[0]["pid"] for trial in trials}) == 2


def test_a_step_that_always_fails_ends_the_run_with_the_cause(two, small, tmp_path):
    root = ROOT / tmp_path.name
    settings = ["resources.max_failures=1", "train.eval_every_epochs=null", shared(tmp_path)]
    command = ["train", str(small), "--root", str(root), *settings]
    done = on(two, command, tmp_path, fault="raise@step:4", check=1)
    result = read_result(only_run(root))
    assert result["status"] == "failed"
    assert "2 attempts in a row failed after step 0" in result["reason"]
    assert "step 4, sample " in result["reason"]
    assert "injected fault at step" in result["reason"]
    assert "injected fault at step" in done.stdout


def test_what_the_cluster_cannot_do_is_refused_in_one_line(two, small, tmp_path):
    root = ROOT / tmp_path.name
    (root / "site").mkdir(parents=True)
    with zipfile.ZipFile(wheel(tmp_path)) as packed:
        packed.extractall(root / "site")

    def refused(*settings: str, address: str = two.address, **more: str) -> str:
        where = ["--root", str(root), "--address", address]
        stored = [] if "storage" in str(settings) else [shared(tmp_path)]
        command = ["train", str(small), *where, *stored, *settings]
        errors = cli(command, tmp_path, check=2, **(two.environment | more)).stderr
        assert errors.count("\n") == 1
        return errors

    assert "3 x 1 = 3 CPUs asked, the cluster has 2" in refused("resources.workers=3")
    assert "1 GPUs asked, the cluster has 0" in refused("resources.gpus_per_worker=1")
    assert "on the machines of the cluster 0 fit" in refused("resources.cpus_per_worker=2")
    if APART:
        begun = time.monotonic()
        said = refused("mixer={name: sent-mean}", PYTHONPATH=str(root / "site"))
        assert "machine " in said
        assert "sent-mean" in said
        print(f"a plugin that the nodes lack, told after {time.monotonic() - begun:.1f} s")
        said = refused(f"resources.storage={root / 'own'}")
        assert "machine " in said
        assert f"resources.storage: {root / 'own'} is not what the driver has there" in said
    assert "no Ray cluster answers there" in refused(address="127.0.0.1:1")
    assert "from outside use subquad submit" in refused(address="http://127.0.0.1:8265")
    assert "RAY_AUTH_TOKEN" in refused(RAY_AUTH_TOKEN="0" * 64)
    assert not (root / "runs").exists()
