"""The script of `cluster render slurm` on Slurm itself, with two nodes on this machine."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cluster import free_port
from command import cli, ready
from small_run import SMALL, digests, only_run
from wheels import MEAN

from subquad.record.names import ATTEMPTS

NEEDED = ("munged", "slurmctld", "slurmd")
SETTINGS = [
    *("train.epochs=null", "train.steps=700", "train.eval_every_epochs=null"),
    *("train.eval_every_steps=50", "resources.workers=2"),
]
CONF = """
ClusterName=test
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={first} CPUs=2
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={second} CPUs=2
PartitionName=main Nodes=ALL Default=YES
"""
pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(not all(map(shutil.which, NEEDED)), reason=f"needs {NEEDED}"),
]


@pytest.fixture
def slurm() -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands reach it."""
    folder = Path("/tmp") / f"sq{secrets.token_hex(4)}"
    (folder / "state").mkdir(parents=True, mode=0o755)
    folder.chmod(0o755)
    ports = {name: free_port() for name in ("port", "first", "second")}
    conf = folder / "slurm.conf"
    conf.write_text(CONF.format(folder=folder, user=getpass.getuser(), **ports))
    key = folder / "key"
    key.write_bytes(secrets.token_bytes(64))
    key.chmod(0o600)
    munge = [f"--key-file={key}", f"--socket={folder}/munge", f"--seed-file={folder}/seed"]
    munge += [f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "SLURM_CONF": str(conf), "PATH": path, "OMP_NUM_THREADS": "1"}
    with ExitStack() as stack:
        for name, command in (
            ("munged", ["munged", "--foreground", "--force", *munge]),
            ("slurmctld", ["slurmctld", "-D"]),
            ("n1", ["slurmd", "-D", "-N", "n1"]),
            ("n2", ["slurmd", "-D", "-N", "n2"]),
        ):
            log = stack.enter_context((folder / f"{name}.log").open("wb"))
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            time.sleep(1)
        yield environment
    shutil.rmtree(folder)


def test_a_job_that_is_queued_again_at_its_time_limit_gives_the_local_bits(slurm, tmp_path):
    ready()
    waits = "import time; time.sleep(0.2)\n        weight = "
    (tmp_path / "mine.py").write_text(MEAN.replace("weight = ", waits))
    mixer = "mixer: {name: agf, params: {order: 3, ortho_weight: 0.01}}"
    (tmp_path / "small.yaml").write_text(SMALL.replace(mixer, "mixer: ./mine.py:Mean"))
    cli(["trust", "."], tmp_path)
    render = ["cluster", "render", "slurm", "small.yaml", *SETTINGS, "--time", "4"]
    cli([*render, "--output", "job.sh"], tmp_path)

    def ask(*words: str) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=slurm, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    job = ask("sbatch", "--parsable", "job.sh")
    deadline = time.monotonic() + 1200
    look = ("squeue", "--noheader", "--states=all", "--job", job, "--Format=State")
    while (state := ask(*look)) in ("PENDING", "RUNNING", "COMPLETING"):
        assert time.monotonic() < deadline
        if state == "PENDING":  # Slurm lets a job that is queued again wait for two minutes
            ask("scontrol", "update", f"JobId={job}", "StartTime=now")
        time.sleep(2)
    said = (tmp_path / f"small-{job}.out").read_text()
    assert state == "COMPLETED", said
    assert "saved before the time limit; the job waits in the queue again" in said
    run = only_run(tmp_path / f"small-{job}")
    attempts = [json.loads(line) for line in (run / ATTEMPTS).read_text().splitlines()]
    assert len(attempts) > 1
    assert attempts[-1]["from_step"] > 0
    cli(["train", "small.yaml", "--local", "--root", str(tmp_path), *SETTINGS], tmp_path)
    assert digests(run) == digests(only_run(tmp_path))
