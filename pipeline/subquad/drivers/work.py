"""What every rank does, whichever driver started it: the same runs, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from filelock import BaseFileLock

from subquad.drivers.folder import claimed
from subquad.drivers.signals import Signum
from subquad.drivers.system import system_metrics
from subquad.engine.group import Group
from subquad.engine.loop import Judge, Signals
from subquad.engine.result import fail
from subquad.engine.run import Status, train_run
from subquad.errors import DiskError, RunError, SubquadError
from subquad.experiment import Run
from subquad.runs import ERROR

# A killed driver's workers die within seconds; a run that goes on waits for them.
_TAKEOVER_SECONDS = 60.0


def rebuilt(plain: Sequence[Mapping[str, Any]], group: Group) -> list[Run]:
    """Runs that came from another process, on every rank.

    Raises:
        SubquadError: on every rank alike: a plugin is missing on some rank, or is another one there.
    """
    return group.together(lambda: [Run.rebuild(one) for one in plain])


def work(
    runs: Sequence[Run], group: Group, asked_to_stop: Signum, *, judge: Judge | None = None, restarts: bool
) -> None:
    """Do the runs in order; a failed one does not keep the next from starting, a stop does.

    Args:
        asked_to_stop, judge: see `engine.loop.Signals`.
        restarts: the driver starts ranks again that end with an unexpected error, so raise it; otherwise it is
            recorded as the run's failure.

    Raises:
        SubquadError: on every rank alike: the only run cannot start.
    """
    system_metrics()  # the first call only sets the mark that the next one measures the CPU from
    for run in runs:
        if group.device.type == "cpu":
            torch.set_num_threads(max(1, int(run.experiment.resources.cpus_per_worker)))
        sampled = group.first and run.experiment.tracking.system_metrics
        signals = Signals(asked_to_stop, system_metrics if sampled else dict, judge)
        lock = group.together(partial(_writer_lock, run, group))
        try:
            if _done(run, group, signals, restarts, alone=len(runs) == 1) == "stopped":
                return
        finally:
            if lock is not None:
                lock.release()


def _done(run: Run, group: Group, signals: Signals, restarts: bool, alone: bool) -> Status:
    try:
        return train_run(run, group, signals)
    except SubquadError as error:
        if alone or isinstance(error, DiskError):
            raise
        return fail(run, group, str(error))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DiskError.reasons:
            raise DiskError(f"{error.filename or run.folder}: {error.strerror}") from error
        if restarts:
            raise
        text = " ".join(str(error).split()) or "no message"
        return fail(run, group, f"{type(error).__name__}: {text} (traceback in {run.folder / ERROR})")


def _writer_lock(run: Run, group: Group) -> BaseFileLock | None:
    """The first rank's claim to be the only writer of a run."""
    if not group.first:
        return None
    if lock := claimed(run.folder / "writer.lock", _TAKEOVER_SECONDS):
        return lock
    raise RunError(f"{run.folder}: another process is still writing this run")
