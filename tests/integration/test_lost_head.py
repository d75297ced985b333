"""The head of a cluster is lost, and comes back with Ray's state from Redis, while a job whose
driver is on another node trains on. Each node has an address and processes of its own, as Ray takes
all that share an address for one machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from cluster import Cluster, cluster, free_port
from command import cli, ready
from small_run import SMALL, digests, only_run
from waiting import until
from wheels import MEAN

from subquad.record.metrics import read_records

NET = "10.77.31"
NEEDED = ("ip", "redis-server", "unshare")
pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, NEEDED)), reason=f"needs root, {NEEDED}"
    ),
]
STEPS = 200
SETTINGS = [
    *("train.epochs=null", f"train.steps={STEPS}", "train.eval_every_epochs=null"),
    *("train.eval_every_steps=10", "resources.workers=2"),
]


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


@pytest.fixture
def bridge() -> Iterator[None]:
    """A network with this machine as .1 and two more, .11 and .12."""
    with ExitStack() as stack:
        ip("link add sq-bridge type bridge")
        stack.callback(ip, "link del sq-bridge")
        ip(f"addr add {NET}.1/24 dev sq-bridge")
        ip("link set sq-bridge up")
        for number in (1, 2):
            name = f"sq-{number}"
            ip(f"netns add {name}")
            stack.callback(ip, f"netns del {name}")
            ip(f"link add {name}-out type veth peer name {name}-in netns {name}")
            ip(f"link set {name}-out master sq-bridge up")
            ip(f"-n {name} addr add {NET}.1{number}/24 dev {name}-in")
            ip(f"-n {name} link set {name}-in up")
            ip(f"-n {name} link set lo up")
        yield


@pytest.fixture
def redis(bridge, tmp_path) -> Iterator[str]:
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", f"{NET}.1", "--protected-mode", "no"]
    log = (tmp_path / "redis.log").open("wb")
    with log, subprocess.Popen([*command, "--dir", str(tmp_path)], stdout=log) as server:
        yield f"{NET}.1:{port}"
        server.terminate()


class Machines:
    """A head, which trains nothing, and two nodes with a CPU each; the first is for drivers."""

    def __init__(self, made: Cluster, redis: str):
        self.cluster, self.redis = made, redis
        made.address = f"{NET}.1:{made.address.rpartition(':')[2]}"
        self.start_head()
        for number, flags in ((1, ["--labels=role=driver"]), (2, [])):
            self._start(number, "--num-cpus=1", *flags, f"--node-ip-address={NET}.1{number}")

    def start_head(self) -> None:
        flags = ["--num-cpus=0", f"--node-ip-address={NET}.1"]
        self.head = self._start(0, *flags, again=bool(self.cluster.nodes))

    def _start(self, number: int, *flags: str, again: bool = False) -> subprocess.Popen[bytes]:
        where = ["ip", "netns", "exec", f"sq-{number}"] if number else []
        apart = ["unshare", "-p", "-m", "--fork", "--mount-proc", "--kill-child", "bash", "-c"]
        empty = f'mount -t tmpfs none {self.cluster.folder} && exec "$@"'
        device = f"sq-{number}-in" if number else "sq-bridge"
        return self.cluster.start(
            *flags,
            within=[*where, *apart, empty, "node"],
            again=again,
            RAY_REDIS_ADDRESS=self.redis,
            GLOO_SOCKET_IFNAME=device,
        )


def test_a_job_on_another_node_trains_on_while_the_head_is_away(redis, tmp_path):
    ready()
    waits = "import time; time.sleep(0.3)\n        weight = "
    (tmp_path / "mine.py").write_text(MEAN.replace("weight = ", waits))
    mixer = "mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}"
    (tmp_path / "small.yaml").write_text(SMALL.replace(mixer, "mixer: ./mine.py:Mean"))
    cli(["trust", "."], tmp_path)
    with cluster() as made:
        machines = Machines(made, redis)

        def submit(*arguments: str) -> str:
            return cli(["submit", *arguments], tmp_path, **made.environment).stdout

        root = tmp_path / "root"
        settings = [*SETTINGS, f"resources.storage={tmp_path / 'shared'}", "--root", str(root)]
        label = ["--driver-label", "role=driver"]
        said = submit("train", "small.yaml", *settings, *label, "--detach")
        job = said.partition("subquad submit logs ")[2].split()[0]
        until(lambda: list(root.glob("runs/small/*/metrics.jsonl")), seconds=240)
        run = tmp_path / "shared" / only_run(root).relative_to(root)

        def step() -> int:
            return max((record.step for record in read_records(run)), default=0)

        for _ in range(2):
            made.kill(machines.head)
            before = step()
            until(lambda: step() > before + 20, seconds=50)  # noqa: B023
            print(f"without a head from step {before} to {step()}")
            machines.start_head()
            (row,) = json.loads(submit("status", job, "--json"))
            assert row["status"] == "RUNNING"
        submit("logs", job, "-f")
        (row,) = json.loads(submit("status", job, "--json"))
        assert row["status"] == "SUCCEEDED"
        assert step() == STEPS
        kept = digests(run)
    cli(["train", "small.yaml", "--local", "--root", str(tmp_path), *SETTINGS], tmp_path)
    assert kept == digests(only_run(tmp_path))
