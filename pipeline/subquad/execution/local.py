"""Training without Ray: in this process, or in several processes of this machine."""

from __future__ import annotations

import itertools
import os
import signal
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from subquad.engine.group import Group
from subquad.engine.loop import PruneReason
from subquad.execution.dispatcher import Dispatcher
from subquad.execution.executor import Executor, Source
from subquad.execution.queue import Done, RunQueue, WorkerGroup
from subquad.execution.ranks import Ranks
from subquad.execution.signals import listening, signum_in, stop_watch
from subquad.execution.worker import work
from subquad.experiment.schema import Resources
from subquad.preparation.preflight import Room, this_machine
from subquad.processes import forking_context, settle
from subquad.record.names import STOP

_POLL_SECONDS = 0.2
_END_SECONDS = 2.0


class LocalExecutor(Executor):
    """This process where one run goes at a time and has one worker, else processes of this
    machine.

    Args:
        jobs: runs at once; None: as many as have a CPU for each worker, and their GPUs.
        ranks: that torchrun or srun started, this process the first; they do one run after the
            other together.
    """

    words = "without Ray"

    def __init__(self, jobs: int | None = None, ranks: Ranks | None = None):
        self.jobs = jobs
        self.ranks = ranks
        if ranks is not None:
            self.words = f"on the {ranks.world_size} ranks that {ranks.by} started"
            self.settings = (f"resources.workers={ranks.world_size}",)
        self.options = ("--local", *(("--jobs", str(jobs)) if jobs else ()))

    def check(self) -> None:
        pass

    def room(self, resources: Resources) -> Room:
        if self.ranks:
            return self.ranks.room(resources)
        return this_machine(shared=True)

    def work(self, source: Source, folder: Path) -> int:
        room = this_machine(shared=self.jobs is not None or self.ranks is not None)
        with listening() as signum:
            queue = RunQueue(
                source, self.check_fit, lambda _: room, 1 if self.ranks else self.jobs, signum
            )
            while worker_group := queue.open("0"):
                resources = worker_group.resources
                take = partial(queue.ask, "0")
                second = queue.open("1")
                heard = 0
                if self.ranks:
                    heard = self.ranks.lead(take, resources, signum, source.prune_reason)
                elif second or resources.most > 1:
                    opened = {"0": worker_group, **({"1": second} if second else {})}
                    _work_in_processes(queue, opened, source, folder / STOP)
                    continue
                else:
                    group = Group(device=device_of(resources, gpus=worker_group.gpus))
                    work(take, group, signum, prune_reason=source.prune_reason)
                queue.close("0", "")
                if heard and not signum():
                    signal.raise_signal(heard)  # another rank was asked to stop, so all are
        return signum()


def device_of(resources: Resources, rank: int = 0, gpus: Collection[int] = (0,)) -> torch.device:
    """The device of a rank on this machine.

    Args:
        gpus: numbers of those that its worker group has.
    """
    if not resources.gpus_per_worker:
        return torch.device("cpu")
    return torch.device("cuda", sorted(gpus)[rank % len(gpus)])


def _work_in_processes(
    queue: RunQueue, opened: Mapping[str, WorkerGroup], source: Source, stop: Path
) -> None:
    """Start these groups and further ones, until none is needed any more."""
    # torch's C++ side warns of DDP's search for unused parameters, which exact resume needs.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    dispatcher = Dispatcher(queue, source, stop)
    worker_groups = dict(opened)
    names = map(str, itertools.count(2))
    with tempfile.TemporaryDirectory(prefix="subquad-") as scratch, listening(stop):
        workers = dict[str, _Workers]()
        try:
            while workers or worker_groups:
                for name, worker_group in worker_groups.items():
                    workers[name] = _Workers(worker_group, f"file://{scratch}/{name}", stop)
                watched = [found.watched for found in workers.values()]
                ready = wait(itertools.chain.from_iterable(watched), _POLL_SECONDS)
                for name, found in list(workers.items()):
                    if found.pipe in ready:
                        found.answer(partial(dispatcher.next_run, name), dispatcher.prune_reason)
                    if how := found.ended:
                        unreported_cause = found.unreported_cause  # before the others are killed
                        workers.pop(name).end()
                        dispatcher.close(name, how, unreported_cause=unreported_cause)
                name = next(names)
                worker_group = dispatcher.open(name)
                worker_groups = {name: worker_group} if worker_group else {}
        finally:
            for found in workers.values():
                found.end()
    if dispatcher.raised is not None:
        raise dispatcher.raised


_RAISED = 1
"""The exit code of a worker that wrote what it failed by."""


class _Workers:
    """The processes of a worker group.

    Args:
        rendezvous: where they find each other.
        stop: file that stops them.

    Attributes:
        pipe: by which the first one asks.
    """

    def __init__(self, group: WorkerGroup, rendezvous: str, stop: Path):
        context = forking_context()
        self.pipe, theirs = context.Pipe()
        self._hung_up = False
        self._processes = list[BaseProcess]()
        for rank in range(group.resources.most):
            device = device_of(group.resources, rank, group.gpus)
            asking = theirs if rank == 0 else None
            given = (rank, group.resources, device, rendezvous, stop, asking, dict(os.environ))
            self._processes.append(context.Process(target=_rank_main, args=given))
            self._processes[-1].start()
        theirs.close()

    @property
    def watched(self) -> Sequence[Connection | int]:
        """What becomes ready when the first one asks, or any has ended."""
        alive = [process.sentinel for process in self._processes if process.is_alive()]
        return alive if self._hung_up else [self.pipe, *alive]

    @property
    def ended(self) -> str:
        """How they ended, "" while they do not."""
        for rank, process in enumerate(self._processes):
            if process.exitcode:
                plain = f"worker {rank} ended with exit code {process.exitcode}"
                return self.unreported_cause or plain
        alive = any(process.is_alive() for process in self._processes)
        return "" if alive else "its workers ended"

    @property
    def unreported_cause(self) -> str:
        """What ended a worker that could not write why; "" where none ended so. Its peers fail
        after it, and know only that it has gone.
        """
        for rank, process in enumerate(self._processes):
            code = process.exitcode or 0
            if code < 0:
                hint = ", as where memory has run out" if code == -signal.SIGKILL else ""
                return f"worker {rank} was killed by {signal.Signals(-code).name}{hint}"
            if code > _RAISED:
                return f"worker {rank} ended with exit code {code}"
        return ""

    def answer(self, next_run: Callable[[Done | None], Any], prune_reason: PruneReason) -> None:
        """Answer what was asked: for a run with what became of the one before, or about a trial by
        its folder.
        """
        try:
            question = self.pipe.recv()
            answer = prune_reason(question) if isinstance(question, Path) else next_run(question)
            self.pipe.send(answer)
        except (EOFError, OSError):
            self._hung_up = True

    def end(self) -> None:
        """Kill those that do not end by themselves."""
        for process in self._processes:
            process.join(timeout=0 if process.exitcode is not None else _END_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        self.pipe.close()


def _rank_main(
    rank: int,
    resources: Resources,
    device: torch.device,
    rendezvous: str,
    stop: Path,
    pipe: Connection | None,
    environment: Mapping[str, str],
) -> None:
    # the driver answers signals, through the stop file
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settle(environment)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if resources.most > 1:
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=rendezvous,
            rank=rank,
            world_size=resources.most,
            timeout=timedelta(seconds=resources.hang_timeout_s),
        )
    group = Group(rank, resources.most, device)

    def ask(question: Any) -> Any:
        assert pipe is not None, "the first rank alone asks"
        pipe.send(question)
        return pipe.recv()

    try:
        work(ask, group, stop_watch(partial(signum_in, stop)), prune_reason=ask)
    except Exception:  # error.txt has the traceback of the first rank that failed
        os._exit(_RAISED)
    if resources.most > 1:
        dist.destroy_process_group()
