"""A campaign of kills on a cluster of four nodes, none of which shares a folder with the driver: 20
workers, 5 drivers, 5 nodes. Every run ends by itself with the weights of an undisturbed one. Each
test prints how long it took from a kill to the next step.

    pytest -m extended tests/integration/test_campaign_ray.py -s
"""

from __future__ import annotations

import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from cluster import Cluster, apart
from command import Command, cli
from result_file import read_result
from small_run import SMALL, digests, only_run
from waiting import until

from subquad.record.metrics import read_records
from subquad.record.names import ATTEMPTS

pytestmark = pytest.mark.extended
ROOT = Path("/tmp/subquad-campaign")
"""Of the driver alone."""
SETTINGS = [
    *("resources.workers=2", "resources.max_failures=5", "train.epochs=null", "train.steps=12000"),
    *("train.eval_every_epochs=null", "train.eval_every_steps=20", "train.log_every=10"),
]


@pytest.fixture(scope="module")
def four() -> Iterator[Cluster]:
    """A head that trains nothing, and three nodes, of which two train."""
    with apart(ROOT, 3) as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    (folder / "small.yaml").write_text(SMALL)
    cli(["train", "small.yaml", "--local", "--root", str(folder), *SETTINGS], folder, seconds=600)
    return digests(only_run(folder))


class Training:
    """A run on the cluster, and its driver."""

    def __init__(self, made: Cluster, folder: Path, *settings: str):
        self.cluster, self.folder, self.root = made, folder, ROOT / folder.name
        (folder / "small.yaml").write_text(SMALL)
        shared = f"resources.storage={folder / 'shared'}"
        chosen = {setting.partition("=")[0]: setting for setting in (*SETTINGS, shared, *settings)}
        self.driver = self.drive(
            ["train", "small.yaml", "--root", str(self.root), *chosen.values()]
        )
        until(lambda: list(self.root.glob(f"runs/small/*/{ATTEMPTS}")), seconds=180)
        self.run = only_run(self.root)
        self.kept = folder / "shared" / self.run.relative_to(self.root)
        self.recovered: list[float] = []

    def drive(self, arguments: list[str]) -> Command:
        where = ["--address", self.cluster.address]
        return Command([*arguments, *where], self.folder, **self.cluster.environment)

    def newest(self) -> int:
        """The attempt that has made a step."""
        return max(
            (record.attempt for record in read_records(self.run) if record.kind == "train"),
            default=0,
        )

    def disturb(self, kill: Callable[[], None], times: int) -> None:
        draw = random.Random(times)
        for _ in range(times):
            until(lambda: self.newest() > len(self.recovered), seconds=180)
            time.sleep(draw.uniform(0.2, 2.0))
            assert read_result(self.run) is None, f"ended after {len(self.recovered)} kills"
            before = self.newest()
            killed = time.time()
            kill()
            until(lambda: self.newest() > before, seconds=180)  # noqa: B023
            steps = [
                record.time
                for record in read_records(self.run)
                if record.attempt > before and record.kind == "train"
            ]
            self.recovered.append(steps[0] - killed)
        seconds = ", ".join(f"{event:.1f}" for event in self.recovered)
        print(
            f"\n{self.folder.name}: median {statistics.median(self.recovered):.1f} "
            f"s to the next step ({seconds})"
        )

    def end(self) -> None:
        out, errors = self.driver.communicate(600)
        assert self.driver.returncode == 0, out + errors
        result = read_result(self.run)
        assert result
        assert result["status"] == "finished"


def workers(node: psutil.Process) -> list[psutil.Process]:
    return [
        child
        for child in node.children(recursive=True)
        if "RayTrainWorker" in " ".join(child.cmdline())
    ]


def test_twenty_workers(four, undisturbed, tmp_path):
    training = Training(four, tmp_path)
    draw = random.Random(0)

    def kill() -> None:
        draw.choice([worker for node in four.living() for worker in workers(node)]).kill()

    training.disturb(kill, 20)
    training.end()
    assert digests(training.kept) == undisturbed


def test_five_drivers(four, undisturbed, tmp_path):
    training = Training(four, tmp_path)

    def kill() -> None:
        training.driver.kill()
        training.driver.wait()
        training.driver = training.drive(["resume", str(training.run)])

    training.disturb(kill, 5)
    training.end()
    assert digests(training.kept) == undisturbed


def test_five_nodes(four, undisturbed, tmp_path):
    training = Training(four, tmp_path)
    draw = random.Random(0)

    def kill() -> None:
        training_nodes = [
            node for node in four.nodes if node.poll() is None and workers(psutil.Process(node.pid))
        ]
        four.kill(draw.choice(training_nodes))
        four.start("--num-cpus=1", private=[ROOT])

    training.disturb(kill, 5)
    training.end()
    assert digests(training.kept) == undisturbed


def test_a_failure_every_two_minutes_costs_less_than_a_fifth(four, tmp_path):
    """Steps that were made and kept, over those that the same time has without a failure."""
    training = Training(
        four,
        tmp_path,
        "resources.max_failures=6",
        "train.steps=10000000",
        "train.eval_every_steps=500",
    )
    until(lambda: training.newest() == 1)
    began, first = time.time(), _step(training)
    for attempt in (1, 2):
        time.sleep(began + 120 * attempt - time.time())
        if attempt == 1:
            rate = (_step(training) - first) / 120
        next(worker for node in four.living() for worker in workers(node)).kill()
        until(lambda: training.newest() > attempt, seconds=180)  # noqa: B023
    time.sleep(began + 360 - time.time())
    goodput = (_step(training) - first) / (rate * 360)
    print(f"\ngoodput {100 * goodput:.1f} % at {rate:.0f} steps/s")
    training.driver.send_signal(signal.SIGTERM)
    training.driver.wait(120)
    assert goodput >= 0.8


def _step(training: Training) -> int:
    return max(record.step for record in read_records(training.run))


def test_a_worker_that_hangs_is_left_behind(four, undisturbed, tmp_path):
    training = Training(four, tmp_path, "resources.hang_timeout_s=10")
    until(lambda: training.newest() == 1)
    next(worker for node in four.living() for worker in workers(node)).suspend()
    until(lambda: training.newest() == 2, seconds=180)
    training.end()
    assert digests(training.kept) == undisturbed
