"""What the workers of a group do, whichever driver started them: one run after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from filelock import BaseFileLock

from subquad.engine.group import Group
from subquad.engine.loop import PruneReason, Signals, no_reason
from subquad.engine.result import fail
from subquad.engine.run import train_run
from subquad.errors import DiskError, RunError, SubquadError, in_one_line
from subquad.execution.queue import END, Done
from subquad.execution.signals import Signum
from subquad.execution.system import system_metrics
from subquad.experiment import Run
from subquad.experiment.folder import claimed
from subquad.record.names import ERROR

# A killed driver's workers die within seconds; a run that goes on waits for them.
_TAKEOVER_SECONDS = 60.0
_WAIT_SECONDS = 0.2

Take = Callable[[Done | None], Run | Mapping[str, Any] | str]
"""What `RunQueue.ask` answers. A run from another process comes as its plain values."""
Place = Callable[[Run], AbstractContextManager[Run]]


def work(
    take: Take,
    group: Group,
    stop_requested: Signum,
    *,
    prune_reason: PruneReason = no_reason,
    at: Place = nullcontext,
    restarts: bool = False,
    broken: Callable[[Exception], bool] = lambda error: False,
) -> None:
    """Do runs until there are no more.

    Args:
        take: called on the first rank.
        stop_requested, prune_reason: see `engine.loop.Signals`.
        at: gives a run a folder of this machine, on every rank, while it is done.
        restarts: the driver starts a single worker again that ends with an unexpected error, as it
            does several, so raise it; otherwise it is recorded as the run's failure, as it is in
            any case of a trial with one worker.
        broken: whether an error is none of the run, so raise it.
    """
    system_metrics()  # the first call only sets the mark that the next one measures the CPU from
    signals = Signals(stop_requested, system_metrics if group.first else dict, prune_reason)
    done = None
    while True:
        given = group.of_first(take, done)
        done = None
        if given == END:
            return
        if isinstance(given, str):  # WAIT
            time.sleep(_WAIT_SECONDS)
            continue
        try:
            done = _done(given, group, signals, at, restarts, broken)
        except SubquadError as error:  # every rank raises it alike
            if broken(error):
                raise
            done = Done(str(error), type(error).__name__)


def _done(
    given: Run | Mapping[str, Any],
    group: Group,
    signals: Signals,
    at: Place,
    restarts: bool,
    broken: Callable[[Exception], bool],
) -> Done:
    run = given if isinstance(given, Run) else group.together(Run.rebuild, given)
    if group.device.type == "cpu":
        torch.set_num_threads(max(1, int(run.experiment.resources.cpus_per_worker)))
    with at(run) as here:
        lock = group.together(_writer_lock, here, group)
        try:
            status = train_run(here, group, signals)
        except SubquadError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DiskError.reasons:
                raise DiskError(f"{error.filename or run.folder}: {error.strerror}") from error
            if (group.world_size > 1 or (restarts and not run.is_trial)) or broken(error):
                raise
            text = f"{type(error).__name__}: {in_one_line(error) or 'no message'}"
            status = fail(here, group, f"{text} (traceback in {run.folder / ERROR})")
        finally:
            if lock is not None:
                lock.release()
    return Done(stopped=status == "stopped")


def _writer_lock(run: Run, group: Group) -> BaseFileLock | None:
    """The first rank's claim to be the only writer of a run."""
    if not group.first:
        return None
    if lock := claimed(run.folder / "writer.lock", _TAKEOVER_SECONDS):
        return lock
    raise RunError(f"{run.folder}: another process is still writing this run")
