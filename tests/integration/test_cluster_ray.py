"""A cluster of several machines, with a token: training on two of them, a driver without data, lost machines, refusals.

Each machine but the head has a folder of its own where the driver has its runs, as machines apart have.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, cluster
from command import cli, ready
from small_run import digests, only_run

from subquad.runs import ATTEMPTS, read_result

pytestmark = pytest.mark.ci
APART = subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
ROOT = Path("/tmp/subquad-driver")
"""Of the driver alone."""


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    """A head that trains nothing, and two machines with one CPU each."""
    ready()
    ROOT.mkdir(exist_ok=True)
    with cluster(["--num-cpus=0"]) as made:
        for _ in range(2):
            made.start("--num-cpus=1", private=[ROOT] if APART else [])
        yield made


def attempts(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / ATTEMPTS).read_text().splitlines()]


def on(made: Cluster, arguments: list[str], cwd: Path, **more):
    return cli([*arguments, "--address", made.address], cwd, **made.environment, **more)


def test_two_machines_give_the_local_numbers_though_a_worker_is_killed(two, small, tmp_path):
    cli(["train", str(small), "--local", "--root", str(tmp_path / "local"), "resources.workers=2"], tmp_path)
    fault = f"kill@step:9:{tmp_path / 'once'}"
    root = ROOT / tmp_path.name
    done = on(two, ["train", str(small), "--root", str(root), "resources.workers=2"], tmp_path, fault=fault)
    run = only_run(root)
    assert digests(run) == digests(only_run(tmp_path / "local"))
    assert read_result(run)["test"] == read_result(only_run(tmp_path / "local"))["test"]
    assert "test accuracy" in done.stdout
    assert done.stderr == ""
    cli(["verify", str(run)], tmp_path)
