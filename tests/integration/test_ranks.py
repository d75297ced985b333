"""`--local` in processes that torchrun or srun started: the same numbers as without, also after
signals and a killed rank.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from command import Command, cli
from result_file import read_result
from small_run import digests, only_run, wait_for_steps

EPOCHS = "train.epochs=30"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run of two workers that were started as always."""
    from small_run import SMALL

    root = tmp_path_factory.mktemp("whole")
    (root / "small.yaml").write_text(SMALL)
    cli(
        ["train", "small.yaml", "--local", "--root", str(root), "resources.workers=2", EPOCHS], root
    )
    return only_run(root)


def srun(stack: ExitStack, arguments: list[str], cwd: Path, count: int = 2) -> list[Command]:
    """Processes with the variables that srun gives the tasks of a step."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    step = {
        "SLURM_STEP_NUM_TASKS": str(count),
        "SLURM_STEP_NUM_NODES": "1",
        "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    places = ({"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)} for rank in range(count))
    return [
        stack.enter_context(Command([*arguments, "--local"], cwd, **step, **place))
        for place in places
    ]


def test_torchrun_gives_the_local_numbers(small, tmp_path, whole):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--no-python", "--", sys.executable, "-P", "-m", "subquad.cli.main"]
    command += ["train", str(small), "--local", "--root", str(tmp_path), EPOCHS]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("on the 2 ranks that torchrun started") == 1
    assert done.stdout.count("small: test accuracy") == 1
    assert digests(only_run(tmp_path)) == digests(whole)
    assert read_result(only_run(tmp_path))["test"] == read_result(whole)["test"]


@pytest.mark.parametrize(
    ("number", "signalled"),
    [
        (signal.SIGTERM, (0, 1)),
        pytest.param(signal.SIGINT, (1,), marks=pytest.mark.extended),
        (None, (1,)),
    ],
)
def test_after_a_signal_or_a_kill_ranks_of_srun_go_on(small, tmp_path, whole, number, signalled):
    """A signal to all ranks, to the second one alone, and a kill of that one."""
    with ExitStack() as stack:
        ranks = srun(stack, ["train", str(small), "--root", str(tmp_path), EPOCHS], tmp_path)
        wait_for_steps(tmp_path, 3, ranks[0])
        for rank in signalled:
            ranks[rank].send_signal(number or signal.SIGKILL)
        outputs = [rank.communicate(120) for rank in ranks]
    run = only_run(tmp_path)
    codes = [rank.returncode for rank in ranks]
    assert codes == ([128 + number] * 2 if number else [1, -signal.SIGKILL]), outputs
    assert outputs[1] == ("", "")
    assert outputs[0][1].count("\n") == 1
    assert "subquad resume" in outputs[0][1]
    with ExitStack() as stack:
        ranks = srun(stack, ["resume", str(run)], tmp_path)
        outputs = [rank.communicate(300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert digests(run) == digests(whole)
    assert read_result(run)["test"] == read_result(whole)["test"]


def test_a_search_and_its_final_study_go_through_the_ranks(small, tmp_path):
    (tmp_path / "space.yaml").write_text("dims: {train.lr: {loguniform: [1e-4, 1e-2]}}")
    search = ["tune", str(small), "--space", "./space.yaml", "--budget", "2-trials"]
    search += ["--root", str(tmp_path), "final.seeds=1"]
    with ExitStack() as stack:
        ranks = srun(stack, search, tmp_path)
        outputs = [rank.communicate(300) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert outputs[1] == ("", "")
    results = [read_result(path.parent) for path in tmp_path.glob("runs/**/result.json")]
    assert [(result["status"], result["workers"]) for result in results] == [("finished", 2)] * 3


@pytest.mark.parametrize(
    ("settings", "more", "message"),
    [
        (
            ["resources.workers=3"],
            {},
            "resources.workers: 3, but srun started 2 ranks",
        ),
        (["train.lr=fast"], {}, "train.lr"),
        ([], {"SLURM_PROCID": "first"}, "SLURM_PROCID: 'first' is no number"),
        ([], {"SLURM_LAUNCH_NODE_IPADDR": ""}, "MASTER_ADDR: set it to the machine of rank 0"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(small, tmp_path, settings, more, message):
    """By the first rank. The others do not wait for it for ever."""
    with ExitStack() as stack:
        command = ["train", str(small), "--root", str(tmp_path), *settings]
        if more:
            step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1", "SLURM_LOCALID": "0"}
            place = {"SLURM_PROCID": "0", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"}
            ranks = [
                stack.enter_context(
                    Command([*command, "--local"], tmp_path, **{**step, **place, **more})
                )
            ]
        else:
            ranks = srun(stack, command, tmp_path)
        outputs = [rank.communicate(60) for rank in ranks]
    assert ranks[0].returncode == 2
    assert outputs[0][1].count("\n") == 1
    assert message in outputs[0][1]
    assert [rank.returncode for rank in ranks[1:]] == [0] * (len(ranks) - 1)
    assert not (tmp_path / "runs" / "small").exists()
