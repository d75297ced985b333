"""Training without Ray: in this process, or on several processes of this machine."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from subquad.drivers.executor import Ended, Executor, NextRun
from subquad.drivers.preflight import Room, this_machine
from subquad.drivers.signals import Signum, listening, stop_file_watch
from subquad.drivers.work import rebuilt, work
from subquad.engine import attempts
from subquad.engine.group import Group
from subquad.engine.loop import Judge
from subquad.engine.result import fail
from subquad.errors import RunError, SubquadError, TrainingFailed
from subquad.experiment import Run
from subquad.experiment.schema import Resources
from subquad.processes import forking_context, settle
from subquad.runs import STOP, read_result


class LocalExecutor(Executor):
    """This process, or several of this machine; one run or trial at a time."""

    words = "without Ray"
    option = " --local"

    def check(self) -> None:
        pass

    def room(self, resources: Resources) -> Room:
        return this_machine(shared=True)

    def train(self, runs: Sequence[Run], resources: Resources, folder: Path, *, judge: Judge | None = None) -> None:
        stop = folder / STOP if resources.most > 1 else None
        with listening(stop) as signum:
            if stop is None:
                work(runs, Group(device=device_of(0, resources)), signum, judge=judge, restarts=False)
            else:
                _run_processes(runs, resources, stop, judge, signum)

    def search(self, next_run: NextRun, judge: Judge | None, ended: Ended) -> int:
        with listening() as signum:
            while not signum() and (run := next_run()):
                self._trial(run, judge)
                if read_result(run.folder) is not None:
                    ended(run)
        return signum()

    def _trial(self, run: Run, judge: Judge | None) -> None:
        try:
            self.train([run], run.experiment.resources, run.folder, judge=judge)
        except RunError:  # another process writes this trial, or the disk is full
            raise
        except SubquadError as error:
            fail(run, Group(), str(error))


def device_of(rank: int, resources: Resources) -> torch.device:
    """The device of a rank on this machine."""
    return torch.device("cuda", rank) if resources.gpus_per_worker else torch.device("cpu")


def _run_processes(runs: Sequence[Run], resources: Resources, stop: Path, judge: Judge | None, signum: Signum) -> None:
    """Start the ranks, and start them again when one dies, as long as that leads to new attempts.

    A run that does not get on ends itself (resources.max_failures); what is left is ranks that die before they begin.
    """
    # torch's C++ side warns of DDP's search for unused parameters, which exact resume needs.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    while True:
        before = attempts.count(runs)
        broken = _run_once(runs, resources, stop, judge)
        if not broken or signum():
            return
        if attempts.count(runs) == before:
            raise TrainingFailed(f"{broken} before it could begin; `subquad resume` tries again")


def _run_once(runs: Sequence[Run], resources: Resources, stop: Path, judge: Judge | None) -> str:
    context = forking_context()
    with tempfile.TemporaryDirectory(prefix="subquad-") as scratch:
        failures = context.SimpleQueue()
        plain, rendezvous = [run.plain() for run in runs], f"file://{scratch}/rendezvous"
        arguments = (plain, resources, rendezvous, stop, judge, failures, dict(os.environ))
        processes = [context.Process(target=_rank_main, args=(rank, *arguments)) for rank in range(resources.most)]
        for process in processes:
            process.start()
        try:
            broken = _wait(processes)
        finally:
            _end(processes)
        if not failures.empty():
            raise failures.get()
        return broken


def _wait(processes: Sequence[BaseProcess]) -> str:
    """Wait until all have ended, or one has ended badly: then say which and how."""
    while any(process.is_alive() for process in processes):
        for rank, process in enumerate(processes):
            process.join(timeout=0.05)
            if process.exitcode:
                code = process.exitcode
                how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                return f"worker {rank} {how}"
    return ""


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.join(timeout=0 if process.exitcode is not None else 2.0)
        if process.is_alive():
            process.kill()
            process.join()


def _rank_main(
    rank: int,
    plain: Sequence[Mapping[str, Any]],
    resources: Resources,
    rendezvous: str,
    stop: Path,
    judge: Judge | None,
    failures: SimpleQueue[SubquadError],
    environment: Mapping[str, str],
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the driver answers signals, through the stop file
    settle(environment)
    device = device_of(rank, resources)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=rendezvous,
        rank=rank,
        world_size=resources.most,
        timeout=timedelta(seconds=resources.hang_timeout_s),
    )
    group = Group(rank, resources.most, device)
    try:
        work(rebuilt(plain, group), group, stop_file_watch(stop), judge=judge, restarts=True)
    except SubquadError as error:  # every rank raises it alike
        if group.first:
            failures.put(error)
    except Exception:  # error.txt has the traceback of the first rank that failed
        os._exit(1)
    dist.destroy_process_group()
