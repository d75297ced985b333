"""Signals to a search that runs through Ray: it goes on by itself, or `--resume` does; nothing is
lost.

With `-s` the tests say how searches ended. Some minutes each.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
import pytest
from command import cli
from result_file import read_result
from searches import (
    Traces,
    descendants,
    last_step,
    only_search,
    start,
    trained,
    trial_folders,
)
from small_run import SMALL
from subquad.record.names import ATTEMPTS
from waiting import until

pytestmark = pytest.mark.extended

LONGER = ["train.epochs=100", "train.eval_every_epochs=10", "train.log_every=13"]
"""1300 steps a trial, saved at every tenth of them."""

KILLED_AT = 300


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict]:
    """What trials with a number of workers come to without Ray and without kills."""

    @cache
    def search(workers: int) -> dict:
        place = tmp_path_factory.mktemp("local")
        write(place)
        cli([*tune(workers), "--local"], place, seconds=1800)
        return trained(only_search(place))

    return search


def write(place: Path) -> None:
    (place / "small.yaml").write_text(SMALL)
    (place / "space.yaml").write_text("dims: {train.lr: {loguniform: [1e-4, 1e-2]}}")


def tune(workers: int) -> list[str]:
    more = ["final.seeds=1", "--budget", "3-trials", f"resources.workers={workers}", *LONGER]
    return ["tune", "small.yaml", "--space", "./space.yaml", *more]


def second_trial(place: Path) -> Path | None:
    """The second trial once it has trained for a while, the first one having ended."""
    for path in place.glob("runs/*-search/*/trials/small/00001"):
        if last_step(path) >= KILLED_AT and read_result(path.with_name("00000")):
            return path
    return None


def begin(place: Path, workers: int):
    """A search, whose second trial trains."""
    write(place)
    process = start(tune(workers), place)
    until(lambda: second_trial(place), process)
    trial = second_trial(place)
    assert trial is not None
    return process, trial


def process_of(trial: Path) -> psutil.Process:
    """That of the first rank of a trial."""
    return psutil.Process(json.loads((trial / ATTEMPTS).read_text().splitlines()[-1])["pid"])


def finish(place: Path, process, traces: Traces) -> int:
    """Wait for a search's end, and resume it where it broke off. Returns the first exit code."""
    out, errors = process.communicate(timeout=1800)
    print(
        f"\nexit {process.returncode}", *out.splitlines()[-1:], *errors.splitlines()[-1:], sep="\n"
    )
    if process.returncode:
        # Ray's agents wait a minute for a cluster that has gone
        assert not traces.after(seconds=90)
        cli(["resume", str(only_search(place))], place, seconds=1800)
    return process.returncode


@pytest.mark.parametrize("workers", [1, 2])
def test_a_search_goes_on_without_a_killed_worker(tmp_path, nothing_left, expected, workers):
    process, trial = begin(tmp_path, workers)
    process_of(trial).kill()
    assert finish(tmp_path, process, nothing_left) == 0
    assert trained(only_search(tmp_path)) == expected(workers)
    starts = [
        len((folder / ATTEMPTS).read_text().splitlines())
        for folder in trial_folders(only_search(tmp_path))
    ]
    assert starts == [1, 2, 1]


@pytest.mark.parametrize("words", ["ray::ImplicitFunc", "ray::TrainController"])
def test_a_search_goes_on_without_what_waits_for_a_trials_workers(
    tmp_path, nothing_left, expected, words
):
    process, _ = begin(tmp_path, 2)
    (victim,) = descendants(process, words)
    victim.kill()
    assert finish(tmp_path, process, nothing_left) == 0
    assert trained(only_search(tmp_path)) == expected(2)


@pytest.mark.parametrize("words", ["/raylet/raylet", "/gcs/gcs_server"])
def test_a_search_without_its_cluster_ends_and_is_resumed(tmp_path, nothing_left, expected, words):
    process, trial = begin(tmp_path, 1)
    before = (trial.with_name("00000") / "result.json").read_bytes()
    (victim,) = descendants(process, words)
    victim.kill()
    finish(tmp_path, process, nothing_left)
    assert trained(only_search(tmp_path)) == expected(1)
    assert (trial.with_name("00000") / "result.json").read_bytes() == before


@pytest.mark.parametrize("workers", [1, 2])
def test_a_killed_driver_leaves_no_process_and_a_search_that_goes_on(
    tmp_path, nothing_left, expected, workers
):
    process, _ = begin(tmp_path, workers)
    assert len(nothing_left.processes()) > 5
    process.kill()
    assert finish(tmp_path, process, nothing_left) != 0
    assert trained(only_search(tmp_path)) == expected(workers)


MOMENTS = [
    *(("search.yaml", "Ray starts"),) * 3,
    ("trials/small/00000/attempts.jsonl", "a trial begins"),
    ("trials/small/00000/checkpoints/step-*", "a trial trains"),
    ("trials/small/00000/result.json", "between trials"),
    ("trials/small/00001/metrics.jsonl", "a trial trains"),
    ("trials/small/00002/result.json", "Ray stops"),
    ("final", "Ray starts again"),
    ("final/cells/*/metrics.jsonl", "a winner trains"),
]
"""File of a search that must be there, and what then goes on."""


@pytest.mark.parametrize("number", range(len(MOMENTS)))
def test_a_terminated_search_is_saved_and_resumed(tmp_path, nothing_left, expected, number):
    """At a random moment, up to five seconds after a given one."""
    name, then = MOMENTS[number]
    write(tmp_path)
    process = start(tune(1), tmp_path)
    until(lambda: list(tmp_path.glob(f"runs/*-search/*/{name}")), process)
    seconds = random.Random(number).uniform(0, 5)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=seconds)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=600)
    search = only_search(tmp_path)
    print(f"\n{seconds:.1f} s after: {then}: exit {process.returncode}, {errors.strip()}")
    assert process.returncode == 143
    assert errors == (
        f"subquad: stopped by SIGTERM; go on with: subquad resume {search.relative_to(tmp_path)}\n"
    )
    cli(["resume", str(search)], tmp_path, seconds=1800)
    assert trained(search) == expected(1)
    assert not list(nothing_left.folder.iterdir())
