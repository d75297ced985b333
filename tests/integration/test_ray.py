"""The Ray Train driver: the same numbers as without Ray, worker death, driver death, strangers'
clusters, signals.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from command import Command, cli
from result_file import read_result
from small_run import digests, only_run, wait_for_steps

from subquad.record.metrics import read_records


@contextmanager
def strangers_cluster() -> Iterator[str]:
    """Somebody else's head on this host."""
    command = [sys.executable, "-c", STRANGER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stranger:
        assert stranger.stdout is not None
        yield json.loads(stranger.stdout.readline())
        stranger.communicate("\n", timeout=60)


STRANGER = """
import json, sys
import ray
context = ray.init(address="local", num_cpus=1, log_to_driver=False, logging_level="ERROR")
print(json.dumps(context.address_info["gcs_address"]), flush=True)
sys.stdin.readline()
ray.shutdown()
"""


@pytest.mark.extended
def test_two_workers_survive_two_kills(small, tmp_path, nothing_left):
    settings = ["resources.workers=2"]
    cli(["train", str(small), "--local", "--root", str(tmp_path / "whole"), *settings], tmp_path)
    fault = f"kill@step:9:{tmp_path / 'one'},kill@save.manifest:2:{tmp_path / 'two'}"
    cli(["train", str(small), "--root", str(tmp_path / "killed"), *settings], tmp_path, fault=fault)
    killed = only_run(tmp_path / "killed")
    assert (tmp_path / "one").exists()
    assert (tmp_path / "two").exists()
    assert read_result(killed)["attempts"] == 3
    assert digests(killed) == digests(only_run(tmp_path / "whole"))


def test_after_ctrl_c_and_a_killed_driver_a_run_beside_another_cluster_has_the_local_numbers(
    small, tmp_path, nothing_left
):
    """A second head on the host changes nothing."""
    cli(
        ["train", str(small), "--local", "--root", str(tmp_path / "whole"), "train.epochs=60"],
        tmp_path,
    )
    root = tmp_path / "ray"
    with strangers_cluster():
        process = Command(["train", str(small), "--root", str(root), "train.epochs=60"], tmp_path)
        wait_for_steps(root, 3, process)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "stopped by SIGINT after saving step" in errors
    assert "Traceback" not in errors
    run = only_run(root)
    process = Command(["resume", str(run)], tmp_path)
    wait_for_steps(root, 5 + max(record.step for record in read_records(run)), process)
    process.kill()
    process.communicate()
    cli(["resume", str(run), "--local"], tmp_path)
    whole = only_run(tmp_path / "whole")
    assert digests(run) == digests(whole)
    assert read_result(run)["test"] == read_result(whole)["test"]
    assert read_result(run)["attempts"] == 3


def test_more_than_the_machine_has_is_refused_at_once(small, tmp_path):
    done = cli(
        ["train", str(small), "--root", str(tmp_path), "resources.cpus_per_worker=4096"],
        tmp_path,
        check=2,
    )
    assert "resources.cpus_per_worker" in done.stderr
    assert "this machine has" in done.stderr
    for how in ([], ["--local"]):
        settings = ["--root", str(tmp_path), "resources.gpus_per_worker=800"]
        done = cli(["train", str(small), *settings, *how], tmp_path, check=2)
        assert "resources.gpus_per_worker" in done.stderr
    assert not (tmp_path / "runs" / "small").exists()


def test_a_cluster_that_does_not_start_is_told_in_one_line(small, tmp_path):
    """Ray makes its sockets below a folder whose path may not be long."""
    more = {"RAY_TMPDIR": str(tmp_path / ("long" * 25))}
    done = cli(["train", str(small), "--root", str(tmp_path)], tmp_path, check=1, **more)
    assert done.stderr.startswith("subquad: Ray did not start: ")
    assert done.stderr.endswith("go on later, or without Ray by --local\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.extended
def test_five_worker_kills_and_two_driver_kills(small, tmp_path, nothing_left):
    settings = ["train.epochs=8", "resources.workers=2"]
    cli(["train", str(small), "--local", "--root", str(tmp_path / "whole"), *settings], tmp_path)
    points = ["step:7", "save.half:9", "step:31", "save.manifest:2", "step:40"]
    fault = ",".join(
        f"kill@{point}:{tmp_path / str(number)}" for number, point in enumerate(points)
    )
    root = tmp_path / "killed"
    for number, steps in enumerate([2, 45]):
        how = (
            ["train", str(small), "--root", str(root), *settings]
            if number == 0
            else ["resume", str(only_run(root))]
        )
        process = Command(how, tmp_path, SUBQUAD_FAULT=fault)
        wait_for_steps(root, steps, process)
        process.kill()
        process.communicate()
    cli(["resume", str(only_run(root))], tmp_path, fault=fault)
    assert all((tmp_path / str(number)).exists() for number in range(5))
    assert digests(only_run(root)) == digests(only_run(tmp_path / "whole"))


TOKEN = """
import json, os, urllib.error, urllib.request
import psutil
from subquad.experiment.schema import Resources
from subquad.ray.cluster import OwnCluster
import ray  # as in a notebook, where it was imported before us

def asked():
    address = os.environ["RAY_API_SERVER_ADDRESS"]
    port = int(address.rsplit(":", 1)[1])
    try:
        status = urllib.request.urlopen(address + "/api/jobs/").status
    except urllib.error.HTTPError as error:
        status = error.code
    hosts = {
        socket.laddr.ip
        for socket in psutil.net_connections("tcp")
        if socket.status == "LISTEN" and socket.laddr.port == port
    }
    secret = os.environ["RAY_AUTH_TOKEN"]
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    shown = any(secret in " ".join(command) for command in commands)
    folder = os.environ["RAY_TMPDIR"]
    return {"status": status, "hosts": sorted(hosts), "shown": shown, "folder": folder}

before = dict(os.environ)
for work in (lambda: None, asked):
    cluster = OwnCluster()
    outcome = cluster.do(work)
    cluster.stop()
if "raised" in outcome:
    raise outcome["raised"]
found = outcome["returned"]
left = os.path.exists(found.pop("folder"))
print(json.dumps(found | {"restored": dict(os.environ) == before, "left": left}))
"""


def test_the_dashboard_is_on_loopback_and_wants_the_token_of_each_cluster(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TOKEN], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["status"] == 401
    assert found["hosts"] == ["127.0.0.1"]
    assert not found["shown"]
    assert not found["left"]
    assert found["restored"]
