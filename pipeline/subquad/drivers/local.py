"""Training without Ray: in this process, or on several processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from subquad.drivers.executor import Ended, Executor, NextRun, failed
from subquad.drivers.signals import Received, listening, stop_file_watch
from subquad.drivers.system import SystemSampler
from subquad.drivers.work import rebuilt, work
from subquad.engine import attempts
from subquad.engine.group import Group
from subquad.engine.loop import Judge, Signals
from subquad.errors import RunError, SubquadError, TrainingFailed
from subquad.experiment import Run
from subquad.experiment.schema import Resources
from subquad.runs import STOP, read_result, write_text


def _train(runs: Sequence[Run], resources: Resources, folder: Path, *, system: bool, judge: Judge | None = None) -> int:
    """Do the runs without Ray. Returns the signal that stopped them, 0 where none did.

    Args:
        runs: what is done.
        resources: number of workers and their devices.
        folder: the run's or study's folder.
        system: sample system metrics.
        judge: of trials, see `Signals`; it is pickled where there are several workers.
    """
    if resources.workers == 1:
        with listening() as received:
            sampler = SystemSampler().latest if system else dict
            group = Group(device=device_of(0, resources))
            work(runs, group, Signals(lambda: received.signum, sampler, judge), restarts=False)
        return received.signum
    stop = folder / STOP
    stop.unlink(missing_ok=True)
    with listening(on_first=lambda signum: write_text(stop, str(signum))) as received:
        _run_processes(runs, resources, stop, system, judge, received)
    return received.signum


class LocalExecutor(Executor):
    """This process, or several of this machine; one run or trial at a time."""

    words = "without Ray"
    reserves = False

    def check(self) -> None:
        pass

    def train(self, runs: Sequence[Run], resources: Resources, folder: Path, *, system: bool) -> int:
        return _train(runs, resources, folder, system=system)

    def search(self, next_run: NextRun, judge: Judge | None, ended: Ended) -> int:
        with listening() as between:  # of a signal while no trial runs
            while not between.signum and (run := next_run()):
                signum = _trial(run, judge)
                if read_result(run.folder) is not None:
                    ended(run)
                if signum:
                    return signum
        return between.signum


def _trial(run: Run, judge: Judge | None) -> int:
    experiment = run.experiment
    system = experiment.tracking.enabled and experiment.tracking.system_metrics
    try:
        return _train([run], experiment.resources, run.folder, system=system, judge=judge)
    except RunError:  # another process writes this trial
        raise
    except SubquadError as error:
        failed(run, str(error))
        return 0


def device_of(rank: int, resources: Resources) -> torch.device:
    """The device of a rank on this machine."""
    return torch.device("cuda", rank) if resources.gpus_per_worker else torch.device("cpu")


def _run_processes(
    runs: Sequence[Run], resources: Resources, stop: Path, system: bool, judge: Judge | None, received: Received
) -> None:
    """Start the ranks, and start them again when one dies, as long as that leads to new attempts.

    A run that does not get on ends itself (resources.max_failures); what is left is ranks that die before they begin.
    """
    # torch's C++ side warns of DDP's search for unused parameters, which exact resume needs.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    while True:
        before = _attempts(runs)
        broken = _run_once(runs, resources, stop, system, judge)
        if not broken or received.signum:
            return
        if _attempts(runs) == before:
            raise TrainingFailed(f"{broken} before it could begin; `subquad resume` tries again")


def _attempts(runs: Sequence[Run]) -> int:
    return sum(len(attempts.read(run.folder)) for run in runs)


def _run_once(runs: Sequence[Run], resources: Resources, stop: Path, system: bool, judge: Judge | None) -> str:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="subquad-") as scratch:
        failures = context.SimpleQueue()
        arguments = ([run.plain() for run in runs], resources, scratch, str(stop), os.getpid(), system, judge, failures)
        processes = [context.Process(target=_rank_main, args=(rank, *arguments)) for rank in range(resources.workers)]
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
    scratch: str,
    stop: str,
    parent: int,
    system: bool,
    judge: Judge | None,
    failures,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver answers Ctrl-C, through the stop file
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    device = device_of(rank, resources)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        init_method=f"file://{scratch}/rendezvous",
        rank=rank,
        world_size=resources.workers,
        timeout=timedelta(seconds=resources.hang_timeout_s),
    )
    sampler = SystemSampler().latest if system and rank == 0 else dict
    group = Group(rank, resources.workers, device)
    try:
        work(
            rebuilt(plain, group),
            group,
            Signals(stop_file_watch(Path(stop), parent), sampler, judge),
            restarts=True,
        )
    except SubquadError as error:  # every rank raises it alike
        if group.first:
            failures.put(error)
    except Exception:  # error.txt has the traceback of the first rank that failed
        os._exit(1)
    dist.destroy_process_group()
